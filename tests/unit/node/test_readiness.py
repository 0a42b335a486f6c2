from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.node.readiness import (
    NodeFacts,
    Policy,
    Pressure,
    RuntimeFacts,
    is_enough,
    node_conditions,
    types_without_runtime,
)
from kubeletx.runtimes.handles.health import RuntimeState

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def runtime(
    name: str,
    *,
    ready: bool = True,
    network: bool = True,
    cordoned: bool = False,
    type_: str = "container",
    reason: str = "",
    message: str = "",
) -> RuntimeFacts:
    if not ready and not reason:
        reason, message = "Unreachable", "connection refused"
    state = RuntimeState(
        ready=ready,
        network_ready=network,
        reachable=ready,
        cordoned=cordoned,
        reason=reason,
        message=message,
        since=NOW,
    )
    return RuntimeFacts(name=name, workload_type=type_, state=state)


runtimes_of_any_kind = st.lists(
    st.builds(
        runtime,
        st.sampled_from("abcdef"),
        ready=st.booleans(),
        network=st.booleans(),
        cordoned=st.booleans(),
        type_=st.sampled_from(["container", "vm"]),
    ),
    max_size=5,
    unique_by=lambda one: one.name,
).map(tuple)


@pytest.mark.parametrize(
    ("policy", "ready", "expected"),
    [
        (Policy.PARTIAL, (True, True), True),
        (Policy.PARTIAL, (False, True), True),
        (Policy.PARTIAL, (False, False), False),
        (Policy.PARTIAL, (), False),
        (Policy.ALL, (True, True), True),
        (Policy.ALL, (True, False), False),
        (Policy.ALL, (), False),
        (Policy.PRIMARY, (True, False), True),
        (Policy.PRIMARY, (False, True), False),
        (Policy.PRIMARY, (), False),
    ],
)
def test_each_policy_needs_its_runtimes(policy: Policy, ready: tuple[bool, ...], expected: bool) -> None:
    assert is_enough([runtime(f"r{n}", ready=ok) for n, ok in enumerate(ready)], policy) is expected


def test_a_cordoned_runtime_does_not_count_under_all() -> None:
    assert is_enough([runtime("a"), runtime("b", ready=False, cordoned=True)], Policy.ALL)
    assert not is_enough([runtime("b", ready=False, cordoned=True)], Policy.ALL)


def test_a_runtime_without_its_network_is_not_ready() -> None:
    assert not is_enough([runtime("a", network=False, reason="NetworkNotReady")], Policy.PARTIAL)


@given(runtimes_of_any_kind, st.sampled_from(Policy))
def test_ready_is_last_and_runtimes_ready_means_all(
    runtimes: tuple[RuntimeFacts, ...], policy: Policy
) -> None:
    conditions = node_conditions(NodeFacts(runtimes=runtimes, policy=policy), now=NOW)
    types = [condition.type for condition in conditions]
    assert types[:3] == ["MemoryPressure", "DiskPressure", "PIDPressure"]
    assert types[-1] == "Ready"
    assert types.count("Ready") == 1
    status = {condition.type: condition.status for condition in conditions}
    assert (status["RuntimesReady"] == "True") == (bool(runtimes) and all(r.is_ready for r in runtimes))
    assert (status["Ready"] == "True") == is_enough(runtimes, policy)
    assert len(types) == 5 + len(runtimes)
    for type_ in types_without_runtime(runtimes):
        assert f"workload type {', '.join(types_without_runtime(runtimes))}" in (conditions[-1].message or "")
        assert type_ in (conditions[-1].message or "")


def test_what_is_reported_of_a_type_without_runtime_is_about_runtimes_of_that_type() -> None:
    away = RuntimeFacts(name="a", workload_type="container", state=RuntimeState(since=NOW))
    facts = NodeFacts(runtimes=(away, runtime("b"), runtime("libvirt", type_="vm", ready=False)))
    message = node_conditions(facts, now=NOW)[-1].message or ""
    assert "no ready runtime for workload type vm (libvirt: " in message
    assert "a: NotConnected" not in message


def test_a_node_that_serves_only_some_types_is_ready_and_says_so() -> None:
    facts = NodeFacts(runtimes=(runtime("containerd-a"), runtime("libvirt", type_="vm", ready=False)))
    ready = node_conditions(facts, now=NOW)[-1]
    assert (ready.status, ready.reason) == ("True", "KubeletReady")
    assert ready.message == (
        "kubelet is posting ready status; no ready runtime for workload type vm "
        "(libvirt: Unreachable: connection refused)"
    )


def test_a_node_without_any_runtime_says_why_it_is_not_ready() -> None:
    ready = node_conditions(NodeFacts(), now=NOW)[-1]
    assert (ready.status, ready.reason) == ("False", "KubeletNotReady")
    assert ready.message == "no container runtime is configured"


def test_missing_capacity_and_other_problems_are_joined() -> None:
    facts = NodeFacts(runtimes=(runtime("a"),), missing_resources=("memory",), problems=("shutting down",))
    ready = node_conditions(facts, now=NOW)[-1]
    assert ready.status == "False"
    assert ready.message == "missing node capacity for resources: memory; shutting down"


def test_a_runtime_that_was_never_asked_is_unknown() -> None:
    state = RuntimeState(since=NOW)
    facts = NodeFacts(runtimes=(RuntimeFacts(name="a", workload_type="container", state=state),))
    condition = node_conditions(facts, now=NOW)[4]
    assert (condition.type, condition.status) == ("kubeletx.io/RuntimeReady-a", "Unknown")


def test_pressures_have_the_kubelet_s_reasons() -> None:
    pressed = node_conditions(NodeFacts(pressure=Pressure(memory=True, disk=True, pids=True)), now=NOW)[:3]
    free = node_conditions(NodeFacts(), now=NOW)[:3]
    assert [(c.status, c.reason) for c in pressed] == [
        ("True", "KubeletHasInsufficientMemory"),
        ("True", "KubeletHasDiskPressure"),
        ("True", "KubeletHasInsufficientPID"),
    ]
    assert [(c.status, c.reason) for c in free] == [
        ("False", "KubeletHasSufficientMemory"),
        ("False", "KubeletHasNoDiskPressure"),
        ("False", "KubeletHasSufficientPID"),
    ]


def test_a_transition_time_changes_only_with_the_status() -> None:
    up, down = NodeFacts(runtimes=(runtime("a"),)), NodeFacts(runtimes=(runtime("a", ready=False),))
    first = node_conditions(up, now=NOW)
    second = node_conditions(up, previous=first, now=NOW + timedelta(minutes=1))
    third = node_conditions(down, previous=second, now=NOW + timedelta(minutes=2))
    assert second[-1].last_transition_time == NOW
    assert second[-1].last_heartbeat_time == NOW + timedelta(minutes=1)
    assert third[-1].last_transition_time == NOW + timedelta(minutes=2)
    assert third[0].last_transition_time == NOW
