"""DELETE requests: preconditions, grace periods, finalizers.

A pod on a node is only marked: it keeps existing, with a deletion timestamp, until a client deletes it with
grace period 0. A grace period can be shortened but not prolonged. A pod that has no node, or that has ended,
is removed at once. An object with finalizers exists until the last of them is removed. Source: apiserver,
pkg/registry/rest/delete.go BeforeDelete, pkg/registry/generic/registry/store.go; kubernetes,
pkg/registry/core/pod/strategy.go CheckGracefulDelete.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from .errors import Json, StatusError, conflict
from .resources import Resource
from .settings import Settings, timestamp

_COLLECTORS: Final = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


def check_preconditions(resource: Resource, value: Json, options: Json) -> None:
    """Raise StatusError 409 if the object does not match the preconditions in the delete options.

    Preconditions are a UID and a resourceVersion.
    """
    wanted = options.get("preconditions") or {}
    metadata = value["metadata"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        raise _other(
            resource,
            metadata["name"],
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). The object "
            "might have been deleted and then recreated",
        )
    if version and version != metadata["resourceVersion"]:
        raise _other(
            resource,
            metadata["name"],
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified",
        )


def _other(resource: Resource, name: str, problem: str) -> StatusError:
    made = conflict(resource, name, problem)
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    made.message = f'Operation cannot be fulfilled on {kind} "{name}": {problem}'
    made.details = {**(made.details or {}), "kind": resource.kind}
    return made


def mark_deleted(resource: Resource, value: Json, options: Json, settings: Settings) -> Json | None:
    """Return the object with its deletion timestamp, to be stored; None: remove the object without marking it.

    An object that is being deleted already is returned unchanged, except that a pod gets a shorter grace
    period if one is requested. Even a pod that is removed at once is marked first, so that watchers see
    MODIFIED before DELETED.
    """
    value = _with_collector(resource, value, options, settings)
    if resource.full_name == "pods":
        return _mark_pod(value, options, settings)
    return _mark(value, 0, settings) if value["metadata"].get("finalizers") else None


def _with_collector(resource: Resource, value: Json, options: Json, settings: Settings) -> Json:
    """Return the object with the finalizer for its propagation policy (orphan or foregroundDeletion).

    A real server's garbage collector removes the finalizer when it is done. With `Settings.controllers` none
    is added, since the collector would have nothing to do and would remove it at once. Without a policy in
    the request, jobs orphan their pods. Source: apiserver, registry/generic/registry/store.go
    deletionFinalizersForGarbageCollection.
    """
    policy = options.get("propagationPolicy") or ("Orphan" if resource.full_name == "jobs.batch" else "")
    finalizer = _COLLECTORS.get(policy)
    metadata = value["metadata"]
    known = metadata.get("finalizers") or []
    if finalizer is None or finalizer in known or settings.controllers:
        return value
    return {**value, "metadata": {**metadata, "finalizers": [*known, finalizer]}}


def is_gone(value: Json) -> bool:
    """Return True if the object is marked for deletion and has neither finalizers nor a grace period."""
    metadata = value["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _mark_pod(pod: Json, options: Json, settings: Settings) -> Json:
    metadata = pod["metadata"]
    asked: int | None = options.get("gracePeriodSeconds")
    if asked is not None and asked < 0:
        asked = 1
    if "deletionTimestamp" in metadata:
        return _shorten(pod, asked)
    grace: int = asked if asked is not None else pod["spec"].get("terminationGracePeriodSeconds", 0)
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        grace = 0
    return _mark(pod, 1 if grace < 0 else grace, settings)


def _shorten(pod: Json, asked: int | None) -> Json:
    metadata = pod["metadata"]
    current = metadata.get("deletionGracePeriodSeconds", 0)
    if asked is None or asked >= current:
        return pod
    deadline = datetime.fromisoformat(metadata["deletionTimestamp"]) + timedelta(seconds=asked - current)
    changed = {"deletionTimestamp": timestamp(deadline), "deletionGracePeriodSeconds": asked}
    return {**pod, "metadata": {**metadata, **changed}}


def _mark(value: Json, grace: int, settings: Settings) -> Json:
    metadata = value["metadata"]
    if "deletionTimestamp" in metadata:
        return value
    moment = settings.now() + timedelta(seconds=grace)
    changed = {"deletionTimestamp": timestamp(moment), "deletionGracePeriodSeconds": grace}
    if metadata.get("generation"):
        changed["generation"] = metadata["generation"] + 1
    return {**value, "metadata": {**metadata, **changed}}
