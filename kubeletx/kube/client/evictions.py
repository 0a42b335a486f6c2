"""Eviction of pods, which respects PodDisruptionBudgets. Source: policy/v1 Eviction; KEP-85."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..types.api_status import Status
from .errors import error_of
from .requests import decode, preconditions
from .resources import PODS

if TYPE_CHECKING:
    from .requests import KubeClient


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
