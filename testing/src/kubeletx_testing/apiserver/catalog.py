"""Resources that are served now: the built-in ones and those of established CustomResourceDefinitions.

A definition may have several versions, of which the double serves one: objects are stored as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import Json
from .resources import BY_PATH, RESOURCES, Resource, resource
from .store import Store

DEFINITIONS: Final = resource("customresourcedefinitions")


class Catalog:
    """The served resources of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource, or None if it is not served."""
        built_in = BY_PATH.get((group, version, plural))
        if built_in is not None:
            return built_in
        stored = self._store.find(DEFINITIONS, ("", f"{plural}.{group}"))
        if stored is None:
            return None
        found = resource_of(stored.value)
        return found if found is not None and found.version == version else None

    def all(self) -> Iterator[Resource]:
        """Every resource, built-in ones first."""
        yield from RESOURCES
        for stored in self._store.all(DEFINITIONS):
            if (found := resource_of(stored.value)) is not None:
                yield found

    def group_versions(self) -> dict[str, str]:
        """Each named API group with its version."""
        return {one.group: one.version for one in self.all() if one.group}


def resource_of(definition: Json) -> Resource | None:
    """The resource of a definition; None while it is not established."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if not any((one["type"], one["status"]) == ("Established", "True") for one in conditions):
        return None
    spec = definition["spec"]
    version = next(one for one in spec["versions"] if one["served"])
    names = spec["names"]
    subresources = {"status": names["kind"]} if "status" in (version.get("subresources") or {}) else {}
    return Resource(
        plural=names["plural"],
        kind=names["kind"],
        group=spec["group"],
        version=version["name"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        subresources=subresources,
        status_subresource=bool(subresources),
        counts_generations=True,
        needs_version=True,
        custom=version,
    )
