"""Patches of the status subresource, for built-in and custom resources alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .requests import Patch, preconditions
from .resources import Resource

if TYPE_CHECKING:
    from .requests import KubeClient

T = TypeVar("T")


async def patch_status(
    client: KubeClient,
    resource: Resource,
    name: str,
    status: Mapping[str, Any],
    type_: type[T],
    *,
    namespace: str = "",
    uid: str = "",
    resource_version: str = "",
) -> T:
    """Merge `status` into the object's status; returns the changed object.

    In `status`, None removes a field, and a list replaces the whole list. `uid`, `resource_version`: raise
    Conflict if the object has another one; empty: not checked. The request is a merge patch (RFC 7386), since
    custom resources do not accept strategic merge patches.
    """
    patch: dict[str, Any] = {"status": status}
    if metadata := preconditions(uid, resource_version):
        patch["metadata"] = metadata
    return await client.patch(resource.path(namespace, name, "status"), patch, type_, kind=Patch.MERGE)
