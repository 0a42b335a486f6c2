"""Requests to subresources: patches of a status, and evictions of pods.

Source: policy/v1 Eviction; KEP-85.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..types.api_status import Status
from .errors import error_of
from .requests import KubeClient, Patch, decode, preconditions
from .resources import PODS, Resource

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


async def evict_pod(
    client: KubeClient,
    namespace: str,
    name: str,
    *,
    uid: str = "",
    resource_version: str = "",
    grace_seconds: int | None = None,
) -> None:
    """Evict the pod if its disruption budget allows it; returns once the pod is marked for deletion.

    `uid`, `resource_version`: evict the pod only if it has this UID or version, else raise Conflict; empty:
    not checked. `grace_seconds` None: the pod's own grace period. Raises NotFound for a pod that is gone,
    BudgetExceeded while a budget forbids the eviction, TooManyRequests when the server is overloaded, and
    Unavailable when two budgets cover the pod, which API servers do not support.
    """
    options: dict[str, Any] = {}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if wanted := preconditions(uid, resource_version):
        options["preconditions"] = wanted
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        **({"deleteOptions": options} if options else {}),
    }
    path = PODS.path(namespace, name, "eviction")
    answer = decode(await client.request("POST", path, body=msgspec.json.encode(eviction)), Status, path)
    if answer.status == "Failure":  # a refusal inside an answer of 201: registry/core/pod/storage/eviction.go
        raise error_of(answer.code or 500, answer, f"POST {path}")
