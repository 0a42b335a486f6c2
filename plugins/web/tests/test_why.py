"""Tests of the sentence that explains a pod's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from kubeletx_web.values import Volume
from kubeletx_web.why import Why, why

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


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (
            pod_of("Running", state({"running": {}}, ready=True), conditions=[condition("Ready", "True")]),
            Why("Runs and is ready.", NOON),
        ),
        (
            pod_of(
                "Running",
                state({"running": {}}, restartCount=2, lastState=OOM),
                conditions=[condition("Ready", "True")],
            ),
            Why(
                "Runs and is ready; container web was restarted 2 times, last exit code 137 (OOMKilled).",
                NOON,
                commands=("kubeletx logs -p p -c web",),
            ),
        ),
        (
            pod_of("Running", state(CRASH, restartCount=3, lastState=OOM), namespace="shop"),
            Why(
                "Container web ends again and again: restarted 3 times, the last time with exit code 137 (OOMKilled).",
                again_at=NOON + timedelta(seconds=40),
                commands=("kubeletx logs -p p -n shop -c web",),
            ),
        ),
        (
            pod_of("Running", state({"running": {}}), conditions=[FROZEN]),
            Why("Frozen; wakes by the command.", NOON, commands=("kubeletx pod activate p",)),
        ),
        (
            pod_of("Failed", state(OOM)),
            Why(
                "Failed: container web ended with exit code 137 (OOMKilled).",
                NOON,
                commands=("kubeletx logs p -c web",),
            ),
        ),
        (
            pod_of("Failed", reason="Evicted", message="The node was low on memory."),
            Why("Ended: Evicted: The node was low on memory."),
        ),
        (
            pod_of(
                "Running", metadata={"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}
            ),
            Why("Is being deleted; its containers get 30 s to end.", NOON),
        ),
        (
            pod_of(
                "Running",
                conditions=[condition("kubeletx.io/RuntimeReachable", "False", "no answer")],
                metadata={"annotations": {"kubeletx.io/bound-runtime": "quark"}},
            ),
            Why(
                "Runtime quark does not answer; this is the last known state: no answer.",
                NOON,
                commands=("kubeletx describe runtime quark",),
            ),
        ),
        (
            pod_of(
                "Running",
                virtualMachineStatus={"name": "web", "powerState": "paused"},
                conditions=[condition("kubeletx.io/UnitsRunning", "False")],
            ),
            Why("The machine is paused.", NOON, commands=("kubeletx vm resume p",)),
        ),
        (
            pod_of("Pending", state({"waiting": {}}), initContainerStatuses=[state({"running": {"startedAt": AT}})]),
            Why("Waits until init container web ends.", NOON),
        ),
        (pod_of("Pending", message="no runtime is ready"), Why("Is not started yet: no runtime is ready.")),
        (
            pod_of("Running", conditions=[condition("Ready", "True"), condition("kubeletx.io/ManifestValid", "False", "bad image")]),
            Why(
                "Runs and is ready. Its new manifest is not valid, and the pod runs on unchanged: bad image.", NOON
            ),
        ),
    ],
)  # fmt: skip
def test_each_state_has_its_sentence(pod: Pod, expected: Why) -> None:
    found = why(pod)
    assert msgspec.structs.replace(found, commands=tuple(found.commands)) == expected


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
    volume = Volume(
        namespace="default", pod="p", name="data", kind="x", state="preparing", message="held by node two"
    )
    pod = pod_of("Pending", state({"waiting": {"reason": "ContainerCreating"}}))
    assert why(pod, volumes=[volume]).text == "Waits for volume data: held by node two."
