"""Adds fields that a real server always writes, because its Go types have them without ``omitempty``.

A client of a real server gets ``null`` times, empty states and empty node infos, so a client of the double
must get them too. The other way round, it gets no empty reasons and messages of conditions, which have ``omitempty``.
Source: staging/src/k8s.io/api/core/v1/types.go, tags without omitempty.
"""

from __future__ import annotations

from typing import Final

from .errors import Json

_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_CONTAINER_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STATE_TIMES: Final = {"running": ("startedAt",), "terminated": ("startedAt", "finishedAt")}


def pod_status(status: Json) -> Json:
    """Return the pod status with all fields that a real server writes, such as ``lastProbeTime: null``."""
    made = _with_conditions(status, "lastProbeTime")
    for field in _CONTAINER_STATUSES:
        if field in made:
            made[field] = [_container_status(status) for status in made[field]]
    return made


def node_status(status: Json) -> Json:
    """Return the node status with all fields that a real server writes, such as an empty nodeInfo."""
    made = _with_conditions(status, "lastHeartbeatTime")
    made["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 0}, **(made.get("daemonEndpoints") or {})}
    made["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(made.get("nodeInfo") or {})}
    if "images" in made:
        made["images"] = [_without(("sizeBytes",), {"names": None, **image}) for image in made["images"]]
    return made


def event(value: Json) -> Json:
    """Return the event with all fields that a real server writes, such as ``eventTime: null``."""
    zero: Json = {
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    return {**zero, **value}


def _with_conditions(status: Json, seen: str) -> Json:
    made = dict(status)
    if "conditions" in made:
        zero: Json = {"status": "", seen: None, "lastTransitionTime": None}
        made["conditions"] = [
            _without(("reason", "message"), {**zero, **condition}) for condition in made["conditions"]
        ]
    return made


def _without(fields: tuple[str, ...], value: Json) -> Json:
    return {name: part for name, part in value.items() if part or name not in fields}


def _container_status(status: Json) -> Json:
    zero: Json = {"state": {}, "lastState": {}, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    made = {**zero, **status}
    made["state"], made["lastState"] = _state(made["state"]), _state(made["lastState"])
    return made


def _state(state: Json) -> Json:
    return {kind: {**dict.fromkeys(_STATE_TIMES.get(kind, ()), None), **part} for kind, part in state.items()}
