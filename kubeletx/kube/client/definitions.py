"""Installation of custom resource definitions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeletx.api import AlreadyExists, Clock, Conflict, NotFound

from ..types.custom import CustomResourceDefinition
from .backoff import server_backoff
from .requests import Patch
from .resources import CUSTOM_RESOURCE_DEFINITIONS

if TYPE_CHECKING:
    from .requests import KubeClient

_TRIES = 3
_FIRST_SECONDS, _CAP_SECONDS = 0.05, 2.0


async def install_definition(
    client: KubeClient, manifest: Mapping[str, Any], *, clock: Clock
) -> CustomResourceDefinition:
    """Create or update a CustomResourceDefinition and return it once the API server serves its resource.

    May be called by several clients at the same time, and again at each start. Fields of the spec that
    `manifest` lacks are left unchanged. Raises Conflict if another definition uses the same names, or if
    other writers keep changing this one. Waits without limit: the caller sets the deadline.
    """
    definition = await _written(client, manifest)
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=definition.metadata.name)
    backoff = server_backoff(first=_FIRST_SECONDS, cap=_CAP_SECONDS)
    while True:
        established, accepted = definition.condition("Established"), definition.condition("NamesAccepted")
        if established is not None and established.status == "True":
            return definition
        if accepted is not None and accepted.status == "False":
            raise Conflict(f"{definition.metadata.name}: {accepted.message or accepted.reason}")
        await client.pause(backoff.next(clock.monotonic()))
        definition = await client.get(path, CustomResourceDefinition)


async def _written(client: KubeClient, manifest: Mapping[str, Any]) -> CustomResourceDefinition:
    name = manifest["metadata"]["name"]
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=name)
    for _ in range(_TRIES):
        try:
            return await client.create(CUSTOM_RESOURCE_DEFINITIONS.path(), manifest, CustomResourceDefinition)
        except AlreadyExists:
            pass
        # Another client may delete or install it at the same time.
        with contextlib.suppress(NotFound, Conflict):
            existing = await client.get(path, CustomResourceDefinition)
            if _contains(existing.spec, manifest["spec"]):
                return existing
            version = {"resourceVersion": existing.metadata.resource_version}
            patch = {"metadata": {**manifest["metadata"], **version}, "spec": manifest["spec"]}
            return await client.patch(path, patch, CustomResourceDefinition, kind=Patch.MERGE)
    raise Conflict(
        f"customresourcedefinitions {name!r} changes all the time; look for another program that writes it"
    )


def _contains(whole: Any, part: Any) -> bool:
    """Return True if `whole` (as the server stores it) has every key and value of `part` (as the client sent it)."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and _contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list | tuple):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(_contains(item, other) for item, other in zip(whole, part, strict=True))
        )
    return bool(whole == part)
