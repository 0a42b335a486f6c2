"""READY, STATUS and RESTARTS are what kubectl prints; ages and selectors too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, names
from kubeletx.cli.output.selectors import parse_selector, select
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.text.human import human_duration
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    VirtualMachine,
    VirtualMachineStatus,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(reason: str) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


def ended(code: int, reason: str | None = None, signal: int | None = None) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason=reason, signal=signal))


RUNNING = ContainerState(running=ContainerStateRunning(started_at=NOW))


def status(
    name: str, state: ContainerState, ready: bool = False, restarts: int = 0, **more: Any
) -> ContainerStatus:
    return ContainerStatus(
        name=name, ready=ready, restart_count=restarts, image="i", image_id="", state=state, **more
    )


def pod(
    *containers: ContainerStatus,
    init: tuple[ContainerStatus, ...] = (),
    sidecars: tuple[str, ...] = (),
    phase: str = "Running",
    reason: str | None = None,
    ready: bool = False,
    initialized: bool = False,
    **meta: Any,
) -> Pod:
    conditions = [PodCondition(type="Ready", status="True")] if ready else []
    conditions += [PodCondition(type="Initialized", status="True")] if initialized else []
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", **meta),
        spec=PodSpec(
            containers=tuple(Container(name=c.name) for c in containers),
            init_containers=tuple(
                Container(name=c.name, restart_policy="Always" if c.name in sidecars else None) for c in init
            ),
        ),
        status=PodStatus(
            phase=phase,
            reason=reason,
            container_statuses=containers,
            init_container_statuses=init,
            conditions=tuple(conditions),
        ),
    )


A_RUNNING = status("a", RUNNING, ready=True)
B_RUNNING = status("b", RUNNING, ready=True)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(A_RUNNING, B_RUNNING), ("2/2", "Running", "0")),
        (
            pod(A_RUNNING, status("b", waiting("CrashLoopBackOff"), restarts=4)),
            ("1/2", "CrashLoopBackOff", "4"),
        ),
        (pod(status("a", waiting("ContainerCreating")), phase="Pending"), ("0/1", "ContainerCreating", "0")),
        (pod(status("a", ended(0, "Completed")), phase="Succeeded"), ("0/1", "Completed", "0")),
        (pod(status("a", ended(2)), phase="Failed"), ("0/1", "ExitCode:2", "0")),
        (pod(status("a", ended(137, signal=9)), phase="Failed"), ("0/1", "Signal:9", "0")),
        (pod(status("a", ended(1, "OOMKilled"))), ("0/1", "OOMKilled", "0")),
        (pod(status("a", ended(0, "Completed")), B_RUNNING, ready=True), ("1/2", "Running", "0")),
        (pod(status("a", ended(0, "Completed")), B_RUNNING), ("1/2", "NotReady", "0")),
        (pod(A_RUNNING, deletion_timestamp=NOW), ("1/1", "Terminating", "0")),
        (
            pod(status("a", ended(0, "Completed")), phase="Succeeded", deletion_timestamp=NOW),
            ("0/1", "Completed", "0"),
        ),
        (pod(phase="Pending", reason="RuntimeNotReady"), ("0/0", "RuntimeNotReady", "0")),
        (pod(phase="Failed", reason="OutOfcpu"), ("0/0", "OutOfcpu", "0")),
        (pod(A_RUNNING, annotations={names.ORPHANED: "true"}), ("1/1", "Orphaned", "0")),
        (Pod(), ("0/0", "Unknown", "0")),
    ],
)
def test_status_of_containers(made: Pod, expected: tuple[str, str, str]) -> None:
    assert summarise(made, NOW) == expected


INIT_DONE = status("i", ended(0, "Completed"))
PENDING = status("a", waiting("PodInitializing"))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            pod(PENDING, init=(status("i", RUNNING), status("j", waiting("PodInitializing")))),
            ("0/1", "Init:0/2", "0"),
        ),
        (pod(PENDING, init=(INIT_DONE, status("j", RUNNING))), ("0/1", "Init:1/2", "0")),
        (pod(PENDING, init=(INIT_DONE, status("j", waiting("PodInitializing")))), ("0/1", "Init:1/2", "0")),
        (
            pod(PENDING, init=(status("i", waiting("CrashLoopBackOff"), restarts=2),)),
            ("0/1", "Init:CrashLoopBackOff", "2"),
        ),
        (pod(PENDING, init=(status("i", ended(1, "Error")),)), ("0/1", "Init:Error", "0")),
        (pod(PENDING, init=(status("i", ended(3)),)), ("0/1", "Init:ExitCode:3", "0")),
        (pod(PENDING, init=(status("i", ended(3, signal=15)),)), ("0/1", "Init:Signal:15", "0")),
        (pod(PENDING, init=(INIT_DONE,)), ("0/1", "PodInitializing", "0")),
        (pod(A_RUNNING, init=(INIT_DONE,)), ("1/1", "Running", "0")),
    ],
)
def test_status_of_init_containers(made: Pod, expected: tuple[str, str, str]) -> None:
    assert summarise(made, NOW) == expected


def test_a_started_sidecar_counts_as_a_container() -> None:
    sidecar = status("s", RUNNING, ready=True, restarts=1, started=True)
    made = pod(A_RUNNING, init=(sidecar,), sidecars=("s",))
    assert summarise(made, NOW) == ("2/2", "Running", "1")


def test_a_sidecar_that_fails_after_the_start_is_seen_and_the_others_still_count() -> None:
    sidecar = status("s", waiting("CrashLoopBackOff"), restarts=2, started=False)
    made = pod(A_RUNNING, init=(sidecar,), sidecars=("s",), initialized=True)
    assert summarise(made, NOW) == ("1/2", "Init:CrashLoopBackOff", "2")


def test_restarts_say_when_the_last_one_was() -> None:
    last = ContainerState(
        terminated=ContainerStateTerminated(exit_code=1, finished_at=NOW - timedelta(minutes=3, seconds=5))
    )
    made = pod(status("a", RUNNING, ready=True, restarts=7, last_state=last))
    assert summarise(made, NOW).restarts == "7 (3m5s ago)"


@pytest.mark.parametrize(("reason", "shown"), [("UnitsPaused", "Standby"), ("UnitsSuspended", "Hibernated")])
def test_a_pod_that_stands_by_says_so(reason: str, shown: str) -> None:
    made = pod(status("a", RUNNING))
    resting = PodCondition(type="kubeletx.io/UnitsRunning", status="False", reason=reason)
    made = replace(made, status=replace(made.status, conditions=(*made.status.conditions, resting)))
    assert summarise(made, NOW)[:2] == ("0/1", shown)


def test_a_machine_counts_as_one_container() -> None:
    made = Pod(
        spec=PodSpec(virtual_machine=VirtualMachine(name="vm")),
        status=PodStatus(
            phase="Running",
            virtual_machine_status=VirtualMachineStatus(
                name="vm", ready=True, power_state="running", restart_count=2
            ),
        ),
    )
    assert summarise(made, NOW) == ("1/1", "Running", "2")


@pytest.mark.parametrize(
    ("condition", "power", "shown"),
    [
        (("True", "Standby"), "paused", "Standby"),
        (("True", "Hibernated"), "suspended", "Hibernated"),
        (("False", "NotFrozen"), "paused", "Paused"),
        (None, "suspended", "Suspended"),
    ],
)
def test_a_machine_on_standby_says_so_and_one_that_was_paused_says_that(
    condition: tuple[str, str] | None, power: str, shown: str
) -> None:
    conditions: tuple[PodCondition, ...] = ()
    if condition is not None:
        conditions = (PodCondition(type="kubeletx.io/Standby", status=condition[0], reason=condition[1]),)
    made = Pod(
        spec=PodSpec(virtual_machine=VirtualMachine(name="vm")),
        status=PodStatus(
            phase="Running",
            conditions=conditions,
            virtual_machine_status=VirtualMachineStatus(name="vm", ready=False, power_state=power),
        ),
    )
    assert summarise(made, NOW)[:2] == ("0/1", shown)


@pytest.mark.parametrize(
    ("power", "shown"), [("paused", "Paused"), ("suspended", "Suspended"), ("shutdown", "Shutdown")]
)
def test_the_power_of_a_machine_is_its_status_however_it_was_written(power: str, shown: str) -> None:
    machine = VirtualMachineStatus(name="vm", power_state=power)
    ran = status("vm", ContainerState(terminated=ContainerStateTerminated(exit_code=0, reason="Completed")))
    made = pod(ran if power == "shutdown" else status("vm", RUNNING))
    made = replace(made, status=replace(made.status, phase="Running", virtual_machine_status=machine))
    assert summarise(made, NOW)[:2] == ("0/1", shown)


def test_a_machine_whose_image_is_not_there_says_so() -> None:
    made = pod(status("vm", waiting("ErrImagePull")))
    machine = VirtualMachineStatus(name="vm", power_state="nostate")
    made = replace(made, status=replace(made.status, phase="Pending", virtual_machine_status=machine))
    assert summarise(made, NOW)[:2] == ("0/1", "ErrImagePull")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (600, "10m"), (10799, "179m"), (10800, "3h"),
        (18600, "5h10m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (187200, "2d4h"), (691200, "8d"),
        (63072000, "2y"), (65664000, "2y30d"), (252288000, "8y"), (-1, "0s"), (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


LABELS = {"app": "web", "tier": "front", "example.com/x": "1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app=db", False), ("app!=db", True), ("none!=db", True),
        ("app in (web, db),tier", True), ("app notin (web)", False), ("none notin (x)", True), ("!none", True),
        ("! app", False), ("example.com/x=1", True), ("app,none", False), ("app in (web),tier=front,!x", True),
        ("app=", False),
    ],
)  # fmt: skip
def test_selectors(text: str, expected: bool) -> None:
    assert select(parse_selector(text), LABELS) is expected


@pytest.mark.parametrize("text", ["a in b", "=x", "a=b=c", "a in (b", ",", "a b"])
def test_what_is_not_a_selector(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not understood"):
        parse_selector(text)


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        parse_selector(text)
    except InvalidConfig:
        pass
