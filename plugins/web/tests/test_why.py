"""Tests of the sentences that explain the state of a pod and of the node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from kubeletx_web.why import why
from kubeletx_web.words import verdict

from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = NOON.isoformat()
OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": AT}}
CRASH = {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=web"}
PULL = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:1": ErrImagePull: refused'}
EVENTS = (
    Event(reason="Failed", message='Failed to pull image "x:1"', count=3, last_timestamp=NOON),
    Event(reason="Unhealthy", message="Readiness probe failed: status 500"),
)
VOLUME = {"podUid": "v", "name": "data", "state": "preparing", "message": "held by node two"}


def unit(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The status of a container."""
    common = {"name": "web", "ready": False, "restartCount": 0, "image": "x:1", "imageID": ""}
    return {**common, "state": state, **more}


def waiting(**waiting: str) -> dict[str, Any]:
    return unit({"waiting": waiting}, restartCount=3, lastState=OOM)


def pod(phase: str, *states: dict[str, Any], namespace: str = "default", **more: Any) -> Pod:
    metadata = {"name": "p", "namespace": namespace, **more.pop("metadata", {})}
    status = {"phase": phase, "containerStatuses": states, **more}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


def having(type_: str, status: str = "True", message: str = "", reason: str = "") -> dict[str, Any]:
    """The field of a status with a condition."""
    known = {"type": type_, "status": status, "message": message, "reason": reason, "lastTransitionTime": AT}
    return {"conditions": [known]}


RUNS = unit({"running": {}}, ready=True)
RESTARTED = unit({"running": {}}, restartCount=2, lastState=OOM)
INVALID = having("kubeletx.io/ManifestValid", "False", "bad image")
AWAY = having("kubeletx.io/RuntimeReachable", "False", "no answer")
FROZEN = having("kubeletx.io/Standby", message="memory: 48.4 MiB before, 0.4 MiB after", reason="Hibernated")
BOUND = {"annotations": {"kubeletx.io/bound-runtime": "quark"}}
ORPHANED = {"annotations": {**BOUND["annotations"], "kubeletx.io/orphaned": "true"}}
DELETED = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}
PAUSED = {"name": "web", "powerState": "paused"}
INIT = [unit({"running": {"startedAt": AT}})]
LATE = {"terminated": {"exitCode": 1, "finishedAt": "9999-12-31T23:59:59Z"}}
CREATING = waiting(reason="ContainerCreating")


OOMKILLED = "exit code 137 (OOMKilled)"
PROBE = "Readiness probe failed: status 500."
CASES = {
    "Runs and is ready.": pod("Running", RUNS, **having("Ready")),
    f"Runs and is ready; container web was restarted 2 times, last {OOMKILLED}. $ kubeletx logs -p p -c web": pod(
        "Running", RESTARTED, **having("Ready")
    ),
    f"Runs, but container web ended with {OOMKILLED}.": pod("Running", RUNS, unit(OOM)),
    f"Runs, but container web is not ready: {PROBE}": pod("Running", unit({"running": {}})),
    f"Runs, but the pod is not ready: {PROBE} "
    "Its new manifest is not valid, and the pod runs on unchanged: bad image.": pod(
        "Running", RUNS, **INVALID
    ),
    "Hibernated: its memory is on disk, 48.4 \u2192 0.4 MiB of memory; wakes by the command. $ kubeletx pod activate p": pod(
        "Running", RUNS, **FROZEN
    ),
    "The machine is paused. $ kubeletx vm resume p": pod("Running", virtualMachineStatus=PAUSED),
    f"Failed: container web ended with {OOMKILLED}. $ kubeletx logs p -c web": pod("Failed", unit(OOM)),
    "Did its work: all containers ended with exit code 0.": pod("Succeeded"),
    "Ended: Evicted: Low on memory.": pod("Failed", reason="Evicted", message="Low on memory."),
    "Is being deleted; its containers get 30 s to end.": pod("Running", metadata=DELETED),
    "Runtime quark does not answer; this is the last known state: no answer. $ kubeletx describe runtime quark": pod(
        "Running", metadata=BOUND, **AWAY
    ),
    "Is on runtime quark, but no manifest, API server or other source has it any more.": pod(
        "Running", metadata=ORPHANED
    ),
    f"Container web ends again and again: restarted 3 times, the last time with {OOMKILLED}."
    " Next in 40 s. $ kubeletx logs -p p -n shop -c web": pod("Running", waiting(**CRASH), namespace="shop"),
    "Container web waits for its image x:1: the pull failed 3 times: ErrImagePull: refused. Next in 40 s.": pod(
        "Pending", waiting(**PULL)
    ),
    "Container web waits: X: y.": pod("Pending", waiting(reason="X", message="y")),
    "Waits for volume data: held by node two.": pod("Pending", CREATING, metadata={"uid": "v"}),
    "Waits until init container web ends.": pod("Pending", CREATING, initContainerStatuses=INIT),
    "Its times are not valid.": pod("Running", unit({"waiting": CRASH}, lastState=LATE)),
    "Starts: web is not started yet.": pod("Pending", CREATING),
    "Is not started yet: no runtime is ready.": pod("Pending", message="no runtime is ready"),
}


@pytest.mark.parametrize(("expected", "known"), CASES.items())
def test_each_state_has_its_sentence_time_of_the_next_try_and_command(expected: str, known: Pod) -> None:
    found = why(known, EVENTS, [VOLUME] if known.uid == "v" else [])
    again = f" Next in {(found.again_at - NOON).seconds} s." if found.again_at is not None else ""
    assert f"{found.text}{again}{''.join(f' $ {each}' for each in found.commands)}" == expected


def test_the_verdict_on_a_node_is_as_old_as_its_newest_part() -> None:
    def condition(type_: str, hour: int) -> dict[str, str]:
        return {"type": type_, "status": "True", "lastTransitionTime": f"2026-01-01T{hour:02}:00:00Z"}

    conditions = [condition("Ready", 1), condition("DiskPressure", 2)]
    node = msgspec.convert({"status": {"conditions": conditions}}, Node)
    runtimes = [
        {"name": "a", "status": "NotReady", "since": "2026-01-01T03:00:00Z"},
        {"name": "b", "status": "Ready", "since": "2026-01-01T04:00:00Z"},
    ]
    worried = verdict(node, runtimes, "")
    assert (worried.text, worried.since) == (
        "Ready, but disk space is short; a is not ready.",
        "2026-01-01T03:00:00Z",
    )
    assert "02:00" in str(verdict(node, runtimes[1:], "").since)
