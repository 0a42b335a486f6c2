"""Tests of the sentence that explains a pod's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from kubeletx_web.why import why

from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = NOON.isoformat()
OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": AT}}
CRASH = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=web"}}
FROZEN = {"type": "kubeletx.io/Standby", "status": "True", "reason": "Standby", "lastTransitionTime": AT}


def state(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The status of a container."""
    return {
        "name": "web",
        "ready": False,
        "restartCount": 0,
        "image": "x:1",
        "imageID": "",
        "state": state,
        **more,
    }


def pod_of(phase: str, *states: dict[str, Any], namespace: str = "default", **more: Any) -> Pod:
    metadata = {"name": "p", "namespace": namespace, **more.pop("metadata", {})}
    status = {"phase": phase, "containerStatuses": states, **more}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


def condition(type_: str, status: str, message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "message": message, "lastTransitionTime": AT}


BOUND = {"kubeletx.io/bound-runtime": "quark"}
READY = condition("Ready", "True")
RUNS = state({"running": {}}, ready=True)
RESTARTED = state({"running": {}}, restartCount=2, lastState=OOM)
INVALID = condition("kubeletx.io/ManifestValid", "False", "bad image")
UNREACHABLE = condition("kubeletx.io/RuntimeReachable", "False", "no answer")
PAUSED: dict[str, Any] = {"virtualMachineStatus": {"name": "web", "powerState": "paused"}}
DELETED = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}
INIT: dict[str, Any] = {"initContainerStatuses": [state({"running": {"startedAt": AT}})]}


@pytest.mark.parametrize(
    ("pod", "text", "command"),
    [
        (pod_of("Running", RUNS, conditions=[READY]), "Runs and is ready.", ""),
        (
            pod_of("Running", RESTARTED, conditions=[READY]),
            "Runs and is ready; container web was restarted 2 times, last exit code 137 (OOMKilled).",
            "kubeletx logs -p p -c web",
        ),
        (
            pod_of("Running", RUNS, state(OOM)),
            "Runs, but container web ended with exit code 137 (OOMKilled).",
            "",
        ),
        (
            pod_of("Running", RUNS, conditions=[READY, INVALID]),
            "Runs and is ready. Its new manifest is not valid, and the pod runs on unchanged: bad image.",
            "",
        ),
        (
            pod_of("Running", RUNS, conditions=[FROZEN]),
            "Frozen; wakes by the command.",
            "kubeletx pod activate p",
        ),
        (
            pod_of("Failed", state(OOM)),
            "Failed: container web ended with exit code 137 (OOMKilled).",
            "kubeletx logs p -c web",
        ),
        (pod_of("Failed", reason="Evicted", message="Low on memory."), "Ended: Evicted: Low on memory.", ""),
        (pod_of("Running", metadata=DELETED), "Is being deleted; its containers get 30 s to end.", ""),
        (
            pod_of("Running", conditions=[UNREACHABLE], metadata={"annotations": BOUND}),
            "Runtime quark does not answer; this is the last known state: no answer.",
            "kubeletx describe runtime quark",
        ),
        (pod_of("Running", **PAUSED), "The machine is paused.", "kubeletx vm resume p"),
        (
            pod_of("Pending", state({"waiting": {}}), **INIT),
            "Waits until init container web ends.",
            "",
        ),
        (pod_of("Pending", message="no runtime is ready"), "Is not started yet: no runtime is ready.", ""),
    ],
)
def test_each_state_has_its_sentence_and_command(pod: Pod, text: str, command: str) -> None:
    found = why(pod)
    assert (found.text, " ".join(found.commands)) == (text, command)


def test_a_container_that_crashes_says_when_it_starts_again() -> None:
    found = why(pod_of("Running", state(CRASH, restartCount=3, lastState=OOM), namespace="shop"))
    assert found.text == (
        "Container web ends again and again: restarted 3 times, the last time with exit code 137 (OOMKilled)."
    )
    assert found.again_at == NOON + timedelta(seconds=40)
    assert found.commands == ("kubeletx logs -p p -n shop -c web",)


def test_a_pod_without_its_image_says_how_often_and_when_again() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:1": ErrImagePull: refused'}
    failed = Event(reason="Failed", message='Failed to pull image "x:1"', count=3, last_timestamp=NOON)
    found = why(pod_of("Pending", state({"waiting": waiting})), [failed])
    assert found.text == (
        "Container web waits for its image x:1: the pull failed 3 times: ErrImagePull: refused."
    )
    assert found.again_at == NOON + timedelta(seconds=40)


def test_a_pod_that_is_not_ready_says_which_probe_failed() -> None:
    unhealthy = Event(reason="Unhealthy", message="Readiness probe failed: status 500")
    pod = pod_of("Running", state({"running": {}}), conditions=[condition("Ready", "False")])
    assert why(pod, [unhealthy]).text == (
        "Runs, but container web is not ready: Readiness probe failed: status 500."
    )


def test_a_pod_that_waits_for_a_volume_names_it() -> None:
    volume = {"pod": "p", "name": "data", "state": "preparing", "message": "held by node two"}
    pod = pod_of("Pending", state({"waiting": {"reason": "ContainerCreating"}}))
    assert why(pod, volumes=[volume]).text == "Waits for volume data: held by node two."
