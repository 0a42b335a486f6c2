"""The whole status: addresses, machine pods, and what holds over random histories."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState, UnitStatus
from kubeletx.kube.types.core import (
    Container,
    EphemeralContainer,
    ExecAction,
    PodStatus,
    Probe,
    ResourceRequirements,
    VirtualMachine,
)
from kubeletx.pods.model.facts import (
    ActionFailure,
    Deletion,
    DesiredPod,
    HookState,
    Outage,
    PodFacts,
    ProbeFacts,
    RestartBackoff,
    UnitFacts,
    Waiting,
)
from kubeletx.pods.status.build import NodeIdentity, build_status
from tests.unit.pods.pod_model import PodModel, make_pod
from tests.unit.pods.status_model import (
    FAKE,
    UID,
    at,
    condition,
    exited,
    facts,
    pod,
    snapshot,
    status_of,
    unit,
)

PROBE = Probe(exec=ExecAction(command=("true",)))
DUAL = NodeIdentity(name="n", host_ips=("fd00::1", "192.0.2.1"), backends={FAKE: "fakerun"})


def test_addresses_start_time_and_qos_are_reported() -> None:
    status = status_of(pod("a"), facts(unit("a")))
    assert (status.host_ip, [ip.ip for ip in status.host_ips]) == ("192.0.2.1", ["192.0.2.1"])
    assert (status.pod_ip, [ip.ip for ip in status.pod_ips]) == ("10.0.0.1", ["10.0.0.1"])
    assert status.start_time is not None
    assert status.qos_class == "BestEffort"


def test_what_the_pod_has_as_a_whole_is_the_sum_of_its_containers() -> None:
    one = ResourceRequirements(
        requests={"cpu": "2m", "memory": "8Mi"}, limits={"cpu": "10m", "memory": "8Mi"}
    )
    other = ResourceRequirements(requests={"cpu": "5m"}, limits={"cpu": "1"})
    wanted = pod("a", "b")
    containers = tuple(
        replace(container, resources=resources)
        for container, resources in zip(wanted.pod.spec.containers, (one, other), strict=True)
    )
    spec = replace(wanted.pod.spec, containers=containers)
    wanted = replace(wanted, pod=replace(wanted.pod, spec=spec))
    status = status_of(wanted, facts(unit("a"), unit("b")))
    assert status.allocated_resources == {"cpu": "7m", "memory": "8Mi"}
    assert status.resources.requests == status.allocated_resources
    assert status.resources.limits == {"cpu": "1010m"}  # nobody limits b's memory


def test_one_address_per_family_the_nodes_family_first() -> None:
    known = facts(unit("a"), snapshot=snapshot(unit("a"), ips=("10.0.0.1", "10.0.0.2", "fd00::5", "bad")))
    status = build_status(pod("a"), known, at(1), DUAL)
    assert [ip.ip for ip in status.pod_ips] == ["fd00::5", "10.0.0.1"]
    assert status.pod_ip == "fd00::5"
    assert [ip.ip for ip in status_of(pod("a"), known).pod_ips] == ["10.0.0.1", "fd00::5"]


def test_a_pod_on_the_nodes_network_has_the_nodes_addresses() -> None:
    known = facts(unit("a"), snapshot=snapshot(unit("a"), ips=()))
    status = status_of(pod("a", host_network=True), known)
    assert [ip.ip for ip in status.pod_ips] == ["192.0.2.1"]


def test_the_address_is_kept_after_the_sandbox_stopped() -> None:
    desired = pod("a", policy="Never")
    before = status_of(desired, facts(unit("a")))
    after = status_of(desired, facts(exited("a"), sandbox=False, previous_status=before))
    assert after.pod_ip == "10.0.0.1"


def test_a_runtime_that_never_told_its_name_is_called_by_ours() -> None:
    status = build_status(pod("a"), facts(unit("a")), at(1), NodeIdentity(name="n"))
    assert status.container_statuses[0].container_id == "fake://a-0"
    before = status_of(pod("a"), facts(unit("a")))
    again = build_status(pod("a"), facts(unit("a"), previous_status=before), at(1), NodeIdentity(name="n"))
    assert again.container_statuses[0].container_id == "fakerun://a-0"


@pytest.mark.parametrize(
    ("state", "power"),
    [
        (UnitState.RUNNING, "running"),
        (UnitState.PAUSED, "paused"),
        (UnitState.SUSPENDED, "suspended"),
        (UnitState.EXITED, "shutdown"),
    ],
)
def test_a_machine_has_a_status_of_its_own_beside_its_container_status(state: UnitState, power: str) -> None:
    desired = pod(virtual_machine=VirtualMachine(name="VM1", image="cirros"), policy="Never")
    status = status_of(desired, facts(unit("vm1", state)))
    assert [s.name for s in status.container_statuses] == ["vm1"]
    machine = status.virtual_machine_status
    assert machine is not None
    assert (machine.name, machine.power_state) == ("VM1", power)
    assert machine.virtual_machine_id == "fakerun://vm1-0"
    assert machine.ready is (state is UnitState.RUNNING)


# --- random facts ---------------------------------------------------------------------------------------

_STATES = st.sampled_from(list(UnitState))
_FAILURES = st.one_of(
    st.none(),
    st.builds(
        ActionFailure,
        reason=st.sampled_from(["ErrImagePull", "CreateContainerError", "PostStartHookError"]),
        message=st.just("m"),
        retry_at=st.one_of(st.none(), st.floats(0, 300)),
        delay_seconds=st.floats(0, 300),
    ),
)


@st.composite
def _units(draw: st.DrawFn) -> tuple[UnitStatus, ...]:
    made = []
    for name in ("i", "side", "a", "b", "debug"):
        for attempt in range(draw(st.integers(0, 2))):
            state = draw(_STATES)
            code = draw(st.sampled_from([0, 1, 137])) if state is UnitState.EXITED else None
            made.append(unit(name, state, attempt=attempt, code=code))
    return tuple(made)


@st.composite
def _known(draw: st.DrawFn, name: str) -> UnitFacts:
    unit_id = UnitId(f"{name}-{draw(st.integers(0, 2))}")
    values = st.sampled_from([None, True, False])
    return UnitFacts(
        failure=draw(_FAILURES),
        image_failure=draw(_FAILURES),
        backoff=draw(
            st.one_of(
                st.none(), st.builds(RestartBackoff, delay_seconds=st.floats(1, 300), updated_at=st.just(0.0))
            )
        ),
        exited_at=draw(st.one_of(st.none(), st.floats(0, 100))),
        hook=draw(st.sampled_from(list(HookState))),
        hook_unit=unit_id,
        probes=ProbeFacts(
            unit_id=unit_id, readiness=draw(values), liveness=draw(values), startup=draw(values)
        ),
    )


@st.composite
def _facts(draw: st.DrawFn) -> PodFacts:
    has_snapshot = draw(st.booleans())
    base = facts(*draw(_units()), sandbox=draw(st.sampled_from([True, False, None])))
    outage = Outage(since=base.started_at, reason="x", message="y")  # type: ignore[arg-type]
    return replace(
        base,
        snapshot=base.snapshot if has_snapshot else None,
        runtime=base.runtime if draw(st.booleans()) else None,
        units={name: draw(_known(name)) for name in ("i", "side", "a") if draw(st.booleans())},
        outage=outage if draw(st.booleans()) else None,
        waiting=Waiting(reason="RuntimeNotReady", message="m") if draw(st.booleans()) else None,
        recovered=draw(st.booleans()),
        in_flight=draw(st.sampled_from([frozenset(), frozenset({"unit/a"})])),
    )


@st.composite
def _desired(draw: st.DrawFn) -> DesiredPod:
    made = pod(
        Container(name="a", readiness_probe=PROBE if draw(st.booleans()) else None),
        Container(name="b", startup_probe=PROBE if draw(st.booleans()) else None),
        init=(Container(name="i"), Container(name="side", restart_policy="Always")),
        policy=draw(st.sampled_from(["Always", "OnFailure", "Never"])),
        source=draw(st.sampled_from(["file", "api"])),
        ephemeral_containers=(EphemeralContainer(name="debug", image="x"),),
    )
    reason = draw(st.sampled_from([None, "", "Evicted"]))
    if reason is None:
        return made
    return replace(made, deletion=Deletion(requested_at=50, grace_seconds=30, reason=reason))


def _check(desired: DesiredPod, status: PodStatus, before: PodStatus | None) -> None:
    assert [s.name for s in status.init_container_statuses] == ["i", "side"]
    assert [s.name for s in status.container_statuses] == ["a", "b"]
    assert [s.name for s in status.ephemeral_container_statuses] == ["debug"]
    assert len({c.type for c in status.conditions}) == len(status.conditions)
    for shown in (*status.init_container_statuses, *status.container_statuses):
        set_ = [s for s in (shown.state.waiting, shown.state.running, shown.state.terminated) if s]
        assert len(set_) == 1
        assert shown.last_state.running is None
        assert shown.last_state.waiting is None
        if shown.ready and shown.name != "i":
            assert shown.started
            assert shown.state.running is not None
    if condition(status, "Ready").status == "True":
        assert condition(status, "ContainersReady").status == "True"
        assert status.phase == "Running"
    if condition(status, "ContainersReady").status == "True":
        assert all(s.ready for s in status.container_statuses)
    if before is not None and before.phase in ("Succeeded", "Failed"):
        assert (status.phase, status.reason) == (before.phase, before.reason)
    if before is not None and len(before.container_statuses) == 2:
        for old, new in zip(before.container_statuses, status.container_statuses, strict=True):
            assert new.restart_count >= old.restart_count


@settings(max_examples=200, deadline=None)
@given(desired=_desired(), history=st.lists(_facts(), min_size=1, max_size=4))
def test_whatever_is_seen_the_status_is_complete_and_final_phases_stay(
    desired: DesiredPod, history: list[PodFacts]
) -> None:
    before = None
    for moment, seen in enumerate(history):
        status = status_of(desired, replace(seen, previous_status=before), 100.0 + moment)
        _check(desired, status, before)
        before = status


@settings(max_examples=100, deadline=None)
@given(desired=_desired(), seen=_facts())
def test_the_same_facts_give_an_equal_status(desired: DesiredPod, seen: PodFacts) -> None:
    status = status_of(desired, seen, 100)
    for later in range(3):
        again = status_of(desired, replace(seen, previous_status=status), 100)
        if later:
            assert again == status
        status = again


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    steps=st.lists(
        st.sampled_from(["settle", "exit0", "exit1", "sandbox", "agent", "wait"]), min_size=1, max_size=12
    ),
)
def test_over_a_planned_life_the_status_agrees_with_what_runs(policy: str, steps: list[str]) -> None:
    model = PodModel(make_pod(("a", "b"), policy=policy))
    final = False
    for step in steps:
        match step:
            case "exit0":
                model.exit("a", 0)
            case "exit1":
                model.exit("b", 1)
            case "sandbox":
                model.lose_sandbox()
            case "agent":
                stored = model.facts.previous_status
                model.restart_agent()
                model.facts = replace(model.facts, previous_status=stored)
            case "wait":
                model.mono += 400
            case _:
                model.settle()
        model.facts = replace(model.facts, snapshot=model.snapshot())
        status = build_status(model.desired, model.facts, model.now(), NodeIdentity(name="n"))
        assert [s.name for s in status.container_statuses] == ["a", "b"]
        for shown in status.container_statuses:
            if shown.state.running is not None:
                assert shown.name in model.alive()
        assert not (final and status.phase not in ("Succeeded", "Failed"))
        final = status.phase in ("Succeeded", "Failed")
        if final:
            assert policy != "Always"
        model.facts = replace(model.facts, previous_status=status)
    assert model.desired.uid == UID
