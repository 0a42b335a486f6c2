"""The resources that the API server double serves.

They are the built-in ones and those of established CustomResourceDefinitions. A definition may list several
versions. The double serves only one of them and never converts objects between versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import Json
from .resources import BY_PATH, RESOURCES, Resource, resource
from .store import Store

DEFINITIONS: Final = resource("customresourcedefinitions")


class Catalog:
    """Finds the resources that an API server with this store serves, including custom ones."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource; None if the double does not serve it in this group and version."""
        built_in = BY_PATH.get((group, version, plural))
        if built_in is not None:
            return built_in
        stored = self._store.find(DEFINITIONS, ("", f"{plural}.{group}"))
        if stored is None:
            return None
        of = resource_of(stored.value)
        return of if of is not None and of.version == version else None

    def all(self) -> Iterator[Resource]:
        """Yield every served resource, built-in ones before custom ones."""
        yield from RESOURCES
        for stored in self._store.all(DEFINITIONS):
            if (of := resource_of(stored.value)) is not None:
                yield of

    def group_versions(self) -> dict[str, str]:
        """Return the version of each API group that has a name (the core group has none)."""
        return {of.group: of.version for of in self.all() if of.group}


def resource_of(definition: Json) -> Resource | None:
    """Return the resource that a CustomResourceDefinition defines; None if the definition is not established."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if not any(
        (condition["type"], condition["status"]) == ("Established", "True") for condition in conditions
    ):
        return None
    spec = definition["spec"]
    version = next(served for served in spec["versions"] if served["served"])
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
