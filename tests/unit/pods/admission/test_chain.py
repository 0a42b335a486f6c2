"""The admission chain: reasons, order, and what it must never do (A1 to A6)."""

from __future__ import annotations

import timeit
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import PodUid, Traits
from kubeletx.kube.types.core import (
    Affinity,
    AppArmorProfile,
    Container,
    ContainerPort,
    NodeAffinity,
    ObjectMeta,
    Pod,
    PodOS,
    PodSecurityContext,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    SeccompProfile,
    SecurityContext,
    Sysctl,
    VirtualMachine,
)
from kubeletx.pods.admission import AdmissionNode, FreedRoom, NodeAdmission
from kubeletx.pods.admission.node import taken_by
from kubeletx.pods.model.facts import DesiredPod, Rejection
from kubeletx.pods.model.sources import API, BUILT_IN, FILE
from kubeletx.pods.specs.sandbox import dotted

GIB = 1 << 30
NODE = AdmissionNode(
    name="n1",
    allocatable={"cpu": 2000, "memory": 4 * GIB, "ephemeral-storage": 10 * GIB},
    labels={"kubernetes.io/os": "linux", "disk": "ssd", "cores": "8"},
)


def pod(
    uid: str = "u1",
    requests: dict[str, str] | None = None,
    *,
    port: ContainerPort | None = None,
    security: SecurityContext | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    container = Container(
        name="c",
        image="i",
        resources=ResourceRequirements(requests=requests or {}),
        ports=(port,) if port else (),
        security_context=security,
    )
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="default", uid=PodUid(uid), labels=labels or {}),
        spec=PodSpec(**{"containers": (container,), **spec}),
    )


def admit(
    one: Pod, node: AdmissionNode, others: Iterable[Pod] = (), traits: Traits | None = None
) -> Rejection | None:
    """The answer for a pod of the cluster on a node that runs `others`."""
    admission = NodeAdmission(node)
    for number, other in enumerate(others):
        admission.restore(replace(other, metadata=replace(other.metadata, uid=PodUid(f"other-{number}"))))
    return admission.admit(DesiredPod(uid=one.uid, pod=one, source=API, spec_hash="h"), traits)


def reason(one: Pod, *others: Pod, node: AdmissionNode = NODE, traits: Traits | None = None) -> str | None:
    found = admit(one, node, others, traits)
    return found.reason if found is not None else None


# --- resource fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "2"}, None),
        ({"cpu": "2001m"}, "OutOfcpu"),
        ({"memory": "4Gi"}, None),
        ({"memory": "5Gi"}, "OutOfmemory"),
        ({"ephemeral-storage": "11Gi"}, "OutOfephemeral-storage"),
        ({"hugepages-2Mi": "2Mi"}, "OutOfhugepages-2Mi"),
        ({"example.com/gpu": "1"}, None),
        ({}, None),
    ],
)
def test_requests_must_fit(requests: dict[str, str], expected: str | None) -> None:
    assert reason(pod(requests=requests)) == expected


def test_extended_resources_that_the_node_has_are_counted() -> None:
    node = replace(NODE, allocatable={**NODE.allocatable, "example.com/gpu": 1})
    one, two = pod("a", {"example.com/gpu": "1"}), pod("b", {"example.com/gpu": "1"})
    assert reason(one, node=node) is None
    assert reason(two, one, node=node) == "OutOfexample.com/gpu"


def test_what_others_use_counts_and_the_message_has_the_kubelets_figures() -> None:
    found = admit(pod("b", {"cpu": "1500m"}), NODE, [pod("a", {"cpu": "1"})])
    assert found is not None
    assert found.message == (
        "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"
    )


def test_the_number_of_pods_is_limited() -> None:
    others = [pod(f"o{i}") for i in range(3)]
    assert reason(pod(), *others, node=replace(NODE, max_pods=3)) == "OutOfpods"
    assert reason(pod(), *others, node=replace(NODE, max_pods=4)) is None


def test_declared_overhead_counts() -> None:
    assert reason(pod(requests={"cpu": "1900m"}, overhead={"cpu": "200m"})) == "OutOfcpu"


@pytest.mark.parametrize(("source", "cpu"), [(FILE, 1500), (API, 1000)])
def test_the_runtimes_own_overhead_counts_for_local_pods_only(source: str, cpu: int) -> None:
    traits = Traits(cpu_overhead_millicores=500)
    taken = taken_by(pod(requests={"cpu": "1"}), BUILT_IN.of(source), traits)
    assert taken is not None
    assert taken.amounts["cpu"] == cpu
    declared = taken_by(pod(requests={"cpu": "1"}, overhead={"cpu": "10m"}), BUILT_IN.of(source), traits)
    assert declared is not None
    assert declared.amounts["cpu"] == 1010


def test_a_remote_runtime_is_outside_the_nodes_resources() -> None:
    assert reason(pod(requests={"cpu": "64"}), traits=Traits(remote=True)) is None


# --- placement ------------------------------------------------------------------------------------------


def affinity(*terms: dict[str, Any]) -> Affinity:
    required = {"nodeSelectorTerms": list(terms)}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return msgspec.convert({"nodeAffinity": node}, Affinity)


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_the_node_selector_must_match() -> None:
    assert reason(pod(node_selector={"disk": "ssd"})) is None
    assert reason(pod(node_selector={"disk": "hdd"})) == "NodeAffinity"


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ((term("disk", "In", "hdd", "ssd"),), True),
        ((term("disk", "NotIn", "ssd"),), False),
        ((term("gpu", "NotIn", "a"),), True),
        ((term("disk", "Exists"),), True),
        ((term("disk", "DoesNotExist"),), False),
        ((term("cores", "Gt", "4"),), True),
        ((term("cores", "Lt", "4"),), False),
        ((term("disk", "Gt", "4"),), False),
        ((term("disk", "Near", "x"),), False),
        ((term("disk", "In", "hdd"), term("disk", "In", "ssd")), True),
        (({},), False),
        ((), False),
        (({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},), True),
        (({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},), False),
    ],
)
def test_required_node_affinity_must_hold(terms: tuple[dict[str, Any], ...], fits: bool) -> None:
    assert (reason(pod(affinity=affinity(*terms))) is None) is fits


def test_preferences_do_not_matter() -> None:
    preferred = NodeAffinity(
        preferred_during_scheduling_ignored_during_execution=(PreferredSchedulingTerm(weight=1),)
    )
    assert reason(pod(affinity=Affinity(node_affinity=preferred))) is None


def test_the_operating_system_must_be_the_nodes() -> None:
    assert reason(pod(os=PodOS(name="linux"))) is None
    assert reason(pod(os=PodOS(name="windows"))) == "PodOSNotSupported"
    assert reason(pod(labels={"kubernetes.io/os": "windows"})) == "PodOSSelectorNodeLabelDoesNotMatch"
    machine = VirtualMachine(name="vm", image="i")
    assert reason(pod(os=PodOS(name="windows"), containers=(), virtual_machine=machine)) is None


# --- host ports -----------------------------------------------------------------------------------------


def host_port(number: int, address: str | None = None, protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(container_port=80, host_port=number, host_ip=address, protocol=protocol)


@pytest.mark.parametrize(
    ("a", "b", "free"),
    [
        (host_port(80), host_port(81), True),
        (host_port(80), host_port(80), False),
        (host_port(80), host_port(80, protocol="UDP"), True),
        (host_port(80, "10.0.0.1"), host_port(80, "10.0.0.2"), True),
        (host_port(80, "10.0.0.1"), host_port(80, "10.0.0.1"), False),
        (host_port(80, "10.0.0.1"), host_port(80), False),
        (host_port(80, "0.0.0.0"), host_port(80, "10.0.0.1"), False),
    ],
)
def test_a_port_of_the_node_is_given_once(a: ContainerPort, b: ContainerPort, free: bool) -> None:
    assert (reason(pod("b", port=b), pod("a", port=a)) is None) is free


def test_a_pod_on_the_nodes_network_takes_its_container_ports() -> None:
    plain = ContainerPort(container_port=9000)
    one, two = pod("a", port=plain, host_network=True), pod("b", port=host_port(9000))
    found = admit(two, NODE, [one])
    assert found is not None
    assert found.reason == "NodePorts"
    assert "default/a" in found.message


# --- sysctls --------------------------------------------------------------------------------------------


def sysctls(*names: str, **spec: Any) -> Pod:
    context = PodSecurityContext(sysctls=tuple(Sysctl(name=n, value="1") for n in names))
    return pod(security_context=context, **spec)


@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        ("net.ipv4.tcp_syncookies", (), None),
        ("net/ipv4/tcp_syncookies", (), None),
        ("net.core.somaxconn", (), "SysctlForbidden"),
        ("net.core.somaxconn", ("net.core.somaxconn",), None),
        ("net.core.somaxconn", ("net.core.*",), None),
        ("net.core.somaxconn", ("net.ipv4.*",), "SysctlForbidden"),
        ("kernel.msgmax", ("kernel.msg*",), None),
    ],
)
def test_only_safe_and_allowed_sysctls_are_admitted(
    name: str, allowed: tuple[str, ...], expected: str | None
) -> None:
    assert reason(sysctls(name), node=replace(NODE, allowed_unsafe_sysctls=allowed)) == expected


def test_sysctls_of_a_namespace_that_is_the_nodes_are_forbidden() -> None:
    assert reason(sysctls("net.ipv4.tcp_syncookies", host_network=True)) == "SysctlForbidden"
    assert reason(sysctls("kernel.shm_rmid_forced", host_ipc=True)) == "SysctlForbidden"
    assert reason(sysctls("kernel.shm_rmid_forced", host_network=True)) is None


def test_slashes_and_dots_change_places() -> None:
    assert dotted("net/ipv4/conf/eth0.1/forwarding") == "net.ipv4.conf.eth0/1.forwarding"
    assert dotted("net.ipv4.conf.eth0/1.forwarding") == "net.ipv4.conf.eth0/1.forwarding"


# --- security and runtime -------------------------------------------------------------------------------


def test_protection_that_the_node_cannot_give_is_a_reason_to_reject() -> None:
    bare = replace(
        NODE, has_apparmor=False, has_seccomp=False, has_user_namespaces=False, has_strict_groups=False
    )
    apparmor = SecurityContext(app_armor_profile=AppArmorProfile(type="RuntimeDefault"))
    seccomp = SecurityContext(seccomp_profile=SeccompProfile(type="RuntimeDefault"))
    open_ = SecurityContext(
        app_armor_profile=AppArmorProfile(type="Unconfined"),
        seccomp_profile=SeccompProfile(type="Unconfined"),
    )
    strict = PodSecurityContext(supplemental_groups_policy="Strict")
    assert reason(pod(security=apparmor), node=bare) == "AppArmor"
    assert reason(pod(security=seccomp), node=bare) == "PodFeatureUnsupported"
    assert reason(pod(host_users=False), node=bare) == "PodFeatureUnsupported"
    assert reason(pod(security_context=strict), node=bare) == "SupplementalGroupsPolicyNotSupported"
    assert reason(pod(security=open_), node=bare) is None
    for one in (pod(security=apparmor), pod(security=seccomp), pod(host_users=False)):
        assert reason(one) is None


def test_the_first_check_of_the_kubelets_order_decides() -> None:
    context = PodSecurityContext(sysctls=(Sysctl(name="kernel.x", value="1"),))
    wrong = {"requests": {"cpu": "64"}, "node_selector": {"a": "b"}, "os": PodOS(name="windows")}
    assert reason(pod(security_context=context, **wrong)) == "SysctlForbidden"
    assert reason(pod(**wrong)) == "PodOSNotSupported"
    del wrong["os"]
    assert reason(pod(**wrong)) == "OutOfcpu"
    del wrong["requests"]
    assert reason(pod(**wrong)) == "NodeAffinity"


# --- counting -------------------------------------------------------------------------------------------


def wanted(one: Pod, source: str = FILE) -> DesiredPod:
    return DesiredPod(uid=one.uid, pod=one, source=source, spec_hash="h")


def test_an_admitted_pod_is_counted_until_it_is_released() -> None:
    admission = NodeAdmission(NODE)
    big, small = wanted(pod("a", {"cpu": "1500m"})), wanted(pod("b", {"cpu": "1"}))
    assert admission.admit(big, None) is None
    assert admission.admit(big, None) is None
    refused = admission.admit(small, None)
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    admission.release(big.uid)
    admission.release(big.uid)
    assert admission.admit(small, None) is None


def test_a_frozen_pod_counts_with_a_share_of_its_requests_until_it_is_woken() -> None:
    admission = NodeAdmission(NODE, standby_percent=40)
    big, small = wanted(pod("a", {"cpu": "1500m", "memory": "100"})), wanted(pod("b", {"cpu": "1"}))
    assert admission.admit(big, None) is None
    assert admission.admit(small, None) is not None
    for resources, amounts in (
        (("cpu",), (600, 100)),
        (("cpu", "memory"), (600, 40)),
        (("cpu",), (600, 100)),
    ):
        admission.count_standby(big.uid, resources)
        assert tuple(admission.occupancy.amounts[name] for name in ("cpu", "memory")) == amounts
    assert admission.admit(small, None) is None
    admission.count_standby(big.uid, ())
    assert admission.occupancy.amounts["cpu"] == 2500, "a wake is not refused"
    assert admission.admit(wanted(pod("c", {"cpu": "1m"})), None) is not None
    admission.count_standby(big.uid, ("cpu", "memory"))
    admission.release(big.uid)
    admission.release(small.uid)
    assert set(admission.occupancy.amounts.values()) == {0}
    admission.count_standby(big.uid, ("cpu",))
    assert set(admission.occupancy.amounts.values()) == {0}


def test_a_frozen_pod_frees_only_what_it_counts_for_a_critical_pod() -> None:
    admission = NodeAdmission(NODE, standby_percent=40)
    frozen, running = wanted(pod("a", {"cpu": "1500m"}), API), wanted(pod("b", {"cpu": "1"}), API)
    assert admission.admit(frozen, None) is None
    admission.count_standby(frozen.uid, ("cpu",))
    assert admission.admit(running, None) is None
    critical = wanted(pod("c", {"cpu": "1100m"}, priority=2_000_000_000))
    freed = admission.make_room(critical, None, leaves=lambda _: False, may_leave=lambda _: True)
    assert isinstance(freed, FreedRoom)
    assert freed.victims == (running.uid,), "700m are short, and the frozen pod counts 600m"


def test_a_frozen_pod_keeps_its_share_when_its_resources_change() -> None:
    admission = NodeAdmission(NODE, standby_percent=40)
    frozen, other = pod("a", {"cpu": "500m"}), wanted(pod("b", {"cpu": "1"}))
    assert admission.admit(wanted(frozen), None) is None
    admission.count_standby(wanted(frozen).uid, ("cpu",))
    larger = wanted(pod("a", {"cpu": "1"})).pod
    assert admission.change(larger, None) is None
    assert admission.occupancy.amounts["cpu"] == 400
    admission.recount(frozen, None)
    assert admission.occupancy.amounts["cpu"] == 200
    assert admission.admit(other, None) is None
    admission.recount(frozen)
    assert admission.occupancy.amounts["cpu"] == 1200


def test_frozen_pods_count_in_full_by_default() -> None:
    admission = NodeAdmission(NODE)
    big = wanted(pod("a", {"cpu": "1500m"}))
    assert admission.admit(big, None) is None
    admission.count_standby(big.uid, ("cpu", "memory"))
    assert admission.occupancy.amounts["cpu"] == 1500


def test_labels_of_the_cluster_stand_in_place_of_the_agents_own() -> None:
    admission = NodeAdmission(replace(NODE, labels={"own": "1"}))
    own = wanted(pod("a", node_selector={"own": "1"}))
    users = wanted(pod("b", node_selector={"users": "1"}))

    def admitted(*pods: DesiredPod) -> list[bool]:
        return [admission.admit(one, None) is None for one in pods]

    assert admitted(own, users) == [True, False]
    admission.release(own.uid)
    admission.relabel({"users": "1"})
    assert admitted(own, users) == [False, True]
    admission.release(users.uid)
    admission.relabel(None)
    assert admission.labels == {"own": "1"}
    assert admitted(own, users) == [True, False]


def test_a_running_pod_is_never_rejected_again_even_if_the_node_shrank() -> None:
    admission = NodeAdmission(replace(NODE, allocatable={"cpu": 100}, max_pods=1))
    running = [pod(f"r{i}", {"cpu": "1"}, port=host_port(80)) for i in range(3)]
    for one in running:
        admission.restore(one)
    assert admission.occupancy.pods == 3
    for one in running:
        assert admission.admit(wanted(one), None) is None
    refused = admission.admit(wanted(pod("new")), None)
    assert refused is not None
    assert refused.reason == "OutOfpods"


def test_pods_on_remote_runtimes_are_not_counted() -> None:
    admission = NodeAdmission(NODE)
    assert admission.admit(wanted(pod("a", {"cpu": "64"})), Traits(remote=True)) is None
    assert admission.occupancy.pods == 0


def test_a_pod_costs_the_same_to_admit_beside_five_thousand_others() -> None:
    def seconds(others: int) -> float:
        admission = NodeAdmission(replace(NODE, max_pods=10_000))
        for number in range(others):
            admission.restore(pod(f"p{number}"))
        return min(timeit.repeat(lambda: admission.occupancy, number=20, repeat=10))

    assert seconds(5_000) < 10 * seconds(10)


_MOVES = st.lists(
    st.tuples(st.sampled_from(["admit", "restore", "release"]), st.integers(0, 7), st.integers(0, 900)),
    max_size=40,
)


@given(moves=_MOVES)
def test_whatever_comes_and_goes_admitted_pods_fit_and_sums_return_to_nothing(
    moves: list[tuple[str, int, int]],
) -> None:
    admission = NodeAdmission(NODE)
    inside: dict[str, int] = {}
    restored = False
    for what, number, cpu in moves:
        one = pod(f"p{number}", {"cpu": f"{cpu}m"})
        name = str(one.uid)
        match what:
            case "admit":
                if admission.admit(wanted(one), None) is None:
                    inside.setdefault(name, cpu)
            case "restore":
                restored = True
                admission.restore(one)
                inside.setdefault(name, cpu)
            case _:
                admission.release(one.uid)
                inside.pop(name, None)
        assert admission.occupancy.pods == len(inside)
        assert admission.occupancy.amounts.get("cpu", 0) == sum(inside.values())
        if not restored:
            assert sum(inside.values()) <= 2000
    for name in list(inside):
        admission.release(PodUid(name))
    assert not any(admission.occupancy.amounts.values())


@given(cpu=st.integers(0, 4000), memory=st.integers(0, 8 * GIB), used=st.integers(0, 2000))
def test_a_pod_fits_exactly_when_no_sum_exceeds_the_node(cpu: int, memory: int, used: int) -> None:
    one = pod("a", {"cpu": f"{cpu}m", "memory": str(memory)})
    found = reason(one, pod("b", {"cpu": f"{used}m"}))
    expected = None
    if cpu and cpu + used > 2000:
        expected = "OutOfcpu"
    elif memory > 4 * GIB:
        expected = "OutOfmemory"
    assert found == expected
