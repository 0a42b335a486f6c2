"""Late binding, and what a pod needs from its runtime."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import FEATURES, PodUid, RuntimeName, Traits, names
from kubeletx.kube.types.core import (
    Capabilities,
    Container,
    ContainerPort,
    EmptyDirVolumeSource,
    Lifecycle,
    ObjectMeta,
    Pod,
    PodDNSConfig,
    PodDNSConfigOption,
    PodSecurityContext,
    PodSpec,
    SeccompProfile,
    SecurityContext,
    Sysctl,
    VirtualMachine,
    Volume,
    VolumeMount,
)
from kubeletx.runtimes.binding.features import missing, needs_of
from kubeletx.runtimes.binding.selection import (
    Chosen,
    RejectPod,
    RuntimeCandidate,
    RuntimeRequest,
    WaitForRuntime,
    choose,
    choose_for,
    requested_by_sandbox,
    requested_runtime,
)

TRAITS = Traits(details=("process", "machine"))


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Pod:
    spec.setdefault("containers", (Container(name="c", image="i"),))
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", annotations=annotations or {}), spec=PodSpec(**spec)
    )


def view(name: str, workload_type: str = "container", **more: Any) -> RuntimeCandidate:
    more.setdefault("ready", True)
    more.setdefault("traits", TRAITS)
    return RuntimeCandidate(name=RuntimeName(name), workload_type=workload_type, **more)


NODE = (view("kvm", "vm"), view("one"), view("two", handlers=("runc", "crun")))
CLASSES = {"second": "two", "crun": "two--crun", "odd": "two--gvisor", "vms": "kvm", "gone": "three"}
VM = VirtualMachine(name="v", image="i")


def test_an_unnamed_pod_takes_the_first_listed_of_its_type() -> None:
    assert choose(pod(), NODE, {}) == Chosen(runtime=RuntimeName("one"), why="default of type container")
    assert choose(pod(virtual_machine=VM, containers=()), NODE, {}).runtime == "kvm"  # type: ignore[union-attr]
    typed = pod({names.WORKLOAD_TYPE: "vm"})
    assert choose(typed, NODE, {}).runtime == "kvm"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "named",
    [
        pod(runtime_service_name="two"),
        pod({names.RUNTIME_SERVICE_NAME: "two"}),
        pod(runtime_class_name="second"),
        pod({names.RUNTIME_SERVICE_NAME: "two"}, runtime_service_name="two", runtime_class_name="second"),
    ],
)
def test_a_pod_may_name_its_runtime_in_three_ways(named: Pod) -> None:
    choice = choose(named, NODE, CLASSES)
    assert isinstance(choice, Chosen)
    assert (choice.runtime, choice.handler) == ("two", "")
    assert choice.why.startswith("named by ")


def test_a_class_adds_its_handler() -> None:
    choice = choose(pod(runtime_service_name="two", runtime_class_name="crun"), NODE, CLASSES)
    assert isinstance(choice, Chosen)
    assert (choice.runtime, choice.handler) == ("two", "crun")


def test_a_class_with_a_runtimes_own_handler_takes_the_first_that_has_it() -> None:
    def chosen(one: Pod, *node: RuntimeCandidate) -> tuple[str, str, str]:
        choice = choose(one, node, {"gpu": "nvidia", "qemu": "kata--qemu", "b": "b"})
        assert isinstance(choice, Chosen), choice
        return choice.runtime, choice.handler, choice.why

    gpu, why = pod(runtime_class_name="gpu"), "named by spec.runtimeClassName gpu"
    a, b, c = (view(name, handlers=("nvidia", "kata--qemu", "runc")) for name in "abc")
    plain, vm = view("plain", handlers=("runc",)), view("kvm", "vm", handlers=("nvidia",))
    assert chosen(gpu, plain, a, b) == ("a", "nvidia", why)
    assert chosen(gpu, view("a", cordoned=True, handlers=("nvidia",)), b) == ("b", "nvidia", why)
    assert chosen(pod(runtime_class_name="qemu"), plain, b)[:2] == ("b", "kata--qemu")
    assert chosen(gpu, plain, vm)[:2] == ("kvm", "nvidia")
    assert chosen(pod({names.WORKLOAD_TYPE: "container"}, runtime_class_name="gpu"), vm, c)[0] == "c"
    assert chosen(pod(runtime_service_name="b", runtime_class_name="gpu"), a, b)[:2] == ("b", "nvidia")
    named_like_a_handler = view("b", handlers=("runc",))
    assert chosen(pod(runtime_class_name="b"), view("a", handlers=("b",)), named_like_a_handler)[:2] == (
        "b",
        "",
    )


def test_a_class_decides_the_type_and_a_name_does_not() -> None:
    assert choose(pod(runtime_class_name="vms"), NODE, CLASSES).runtime == "kvm"  # type: ignore[union-attr]
    choice = choose(pod(runtime_service_name="kvm"), NODE, CLASSES)
    assert isinstance(choice, RejectPod)
    assert choice.reason == names.RUNTIME_MISMATCH
    assert "runtime 'kvm' is of type vm, the pod is a container workload" in choice.message


def test_names_that_disagree_are_rejected_with_both_named() -> None:
    choice = choose(pod({names.RUNTIME_SERVICE_NAME: "one"}, runtime_class_name="second"), NODE, CLASSES)
    assert isinstance(choice, RejectPod)
    assert "names 'one'" in choice.message
    assert "names 'two'" in choice.message


@pytest.mark.parametrize(
    ("wanted", "node", "reason", "words"),
    [
        (pod(runtime_service_name="x"), NODE, names.RUNTIME_NOT_FOUND, "no runtime 'x'.*kvm, one, two"),
        (
            pod(runtime_class_name="gone"),
            NODE,
            names.RUNTIME_NOT_FOUND,
            "no runtime 'three' on this node, and no runtime with handler 'three'; runtimes: kvm, one, two; "
            "handlers: crun, runc",
        ),
        (pod(runtime_class_name="nope"), NODE, names.RUNTIME_NOT_FOUND, "class 'nope' is not mapped"),
        (
            pod(runtime_class_name="odd"),
            NODE,
            names.RUNTIME_NOT_FOUND,
            "no handler 'gvisor'; handlers: runc, crun",
        ),
        (pod(runtime_service_name="a"), (view("a", cordoned=True), view("b")), names.RUNTIME_CORDONED, "'a'"),
        (pod(runtime_service_name="a"), (view("a", ready=False), view("b")), names.RUNTIME_NOT_READY, "'a'"),
        (pod(), (view("a", cordoned=True),), names.RUNTIME_CORDONED, "every runtime of type container"),
        (pod(), (view("a", "vm"),), names.RUNTIME_NOT_FOUND, "no runtime of type container"),
        (pod(), (view("a", traits=None), view("b")), names.RUNTIME_NOT_READY, "'a'.*not reached yet"),
    ],
)
def test_what_may_heal_waits(
    wanted: Pod, node: tuple[RuntimeCandidate, ...], reason: str, words: str
) -> None:
    import re

    choice = choose(wanted, node, CLASSES)
    assert isinstance(choice, WaitForRuntime)
    assert choice.reason == reason
    assert re.search(words, choice.message)


def test_an_unnamed_pod_takes_its_default_even_if_that_is_not_ready() -> None:
    choice = choose(pod(), (view("a", ready=False), view("b")), {})
    assert isinstance(choice, Chosen)
    assert choice.runtime == "a"
    choice = choose(pod(), (view("a", cordoned=True), view("b")), {})
    assert isinstance(choice, Chosen)
    assert choice.runtime == "b"


def test_strict_groups_are_refused_with_the_kubelets_reason() -> None:
    node = (view("a", traits=Traits(refuses=("strict-groups",))),)
    strict = PodSecurityContext(supplemental_groups_policy="Strict")
    choice = choose(pod(security_context=strict), node, {})
    assert isinstance(choice, RejectPod)
    assert choice.reason == "SupplementalGroupsPolicyNotSupported"


def test_a_pod_waits_for_a_feature_that_its_runtime_refuses() -> None:
    node = (view("a", traits=Traits(refuses=("privileged", "tty"))),)
    needy = pod(
        containers=(Container(name="c", tty=True, security_context=SecurityContext(privileged=True)),)
    )
    choice = choose(needy, node, {})
    assert isinstance(choice, WaitForRuntime)
    assert (choice.reason, choice.runtime) == (names.RUNTIME_UNSUPPORTED, "a")
    assert choice.message == "runtime 'a' cannot do what the pod needs: privileged, tty"
    assert isinstance(choose(pod(), node, {}), Chosen)


def test_a_handler_refuses_other_things_than_its_runtime() -> None:
    traits = Traits(refuses=("user-namespace",), handler_refuses={"crun": (), "runc": ("tty",)})
    node = (view("two", handlers=("runc", "crun"), traits=traits),)
    own: dict[str, Any] = {"host_users": False, "runtime_service_name": "two"}
    assert isinstance(choose(pod(**own), node, CLASSES), WaitForRuntime)
    assert isinstance(choose(pod(**own, runtime_class_name="crun"), node, CLASSES), Chosen)


def test_a_remote_runtime_refuses_what_is_on_this_node() -> None:
    local = pod(host_network=True, volumes=(Volume(name="v", empty_dir=EmptyDirVolumeSource()),))
    found = missing(local, Traits(remote=True))
    assert found == ("host-network on a remote runtime", "volume 'v' of this node on a remote runtime")


def test_details_must_fit() -> None:
    assert missing(pod(virtual_machine=VM, containers=()), Traits()) == ("virtual machines",)
    assert missing(pod(), Traits(details=("machine",))) == ()
    two = (Container(name="a", image="i"), Container(name="b", image="i"))
    assert missing(pod(containers=two), Traits(details=("machine",))) == (
        "containers (a machine is written as exactly one, without init and ephemeral ones)",
    )
    shell = (Container(name="a", image="i", command=("sh",)),)
    assert missing(pod(containers=shell), Traits(details=("machine",))) == (
        "spec.containers[0].command of a machine",
    )


def test_the_needs_of_a_full_pod() -> None:
    full = pod(
        dns_config=PodDNSConfig(options=(PodDNSConfigOption(name="timeout", value="1"),)),
        host_pid=True,
        host_ipc=True,
        host_users=False,
        security_context=PodSecurityContext(
            run_as_user=1,
            sysctls=(Sysctl(name="a", value="b"),),
            seccomp_profile=SeccompProfile(type="Localhost"),
        ),
        init_containers=(Container(name="i", stdin=True),),
        containers=(
            Container(
                name="c",
                lifecycle=Lifecycle(stop_signal="SIGUSR1"),
                ports=(ContainerPort(container_port=80, host_port=80),),
                volume_mounts=(
                    VolumeMount(name="v", mount_propagation="Bidirectional", recursive_read_only="Enabled"),
                ),
                security_context=SecurityContext(
                    capabilities=Capabilities(add=("NET_ADMIN",)), read_only_root_filesystem=True
                ),
            ),
        ),
    )
    assert needs_of(full) == {
        "pod-network",
        "dns-options",
        "host-pid",
        "host-ipc",
        "user-namespace",
        "run-as-user",
        "sysctls",
        "seccomp",
        "several-units",
        "stdin",
        "stop-signal",
        "host-ports",
        "mounts",
        "mount-propagation",
        "recursive-read-only",
        "capabilities",
        "read-only-root",
    }
    assert needs_of(full) <= FEATURES
    assert needs_of(pod()) == {"pod-network"}
    assert needs_of(pod(dns_config=PodDNSConfig(nameservers=("10.0.0.1",)))) == {"pod-network"}
    assert needs_of(pod(host_network=True)) == {"host-network"}


runtimes = st.lists(
    st.builds(
        RuntimeCandidate,
        name=st.sampled_from([RuntimeName(n) for n in "abcdef"]),
        workload_type=st.sampled_from(["container", "vm"]),
        ready=st.booleans(),
        cordoned=st.booleans(),
        traits=st.sampled_from([None, TRAITS, Traits(refuses=("pod-network",))]),
    ),
    unique_by=lambda r: r.name,
    max_size=6,
)
pods = st.builds(
    lambda name, annotation, vm, class_name: pod(
        {names.RUNTIME_SERVICE_NAME: annotation} if annotation else {},
        runtime_service_name=name,
        virtual_machine=VM if vm else None,
        runtime_class_name=class_name,
    ),
    st.none() | st.sampled_from("abcx"),
    st.none() | st.sampled_from("ab"),
    st.booleans(),
    st.none() | st.sampled_from(["k1", "k2"]),
)


@given(pods, runtimes, st.permutations([("k1", "a"), ("k2", "b--h"), ("k3", "c")]))
def test_no_order_of_a_map_decides_anything(
    wanted: Pod, node: list[RuntimeCandidate], classes: list[tuple[str, str]]
) -> None:
    assert choose(wanted, node, dict(classes)) == choose(wanted, node, dict(sorted(classes)))


@given(pods, runtimes)
def test_a_named_pod_gets_that_runtime_or_none(wanted: Pod, node: list[RuntimeCandidate]) -> None:
    choice = choose(wanted, node, {"k1": "a", "k2": "b--h"})
    if isinstance(choice, Chosen):
        runtime = next(r for r in node if r.name == choice.runtime)
        assert not runtime.cordoned
        assert wanted.spec.runtime_service_name in (None, choice.runtime)


@given(runtimes, st.data())
def test_the_default_depends_on_the_order_listed_alone(
    node: list[RuntimeCandidate], data: st.DataObject
) -> None:
    choice = choose(pod(), node, {})
    others = [r for r in node if r.workload_type != "container" or r.cordoned]
    mine = [r for r in node if r not in others]
    mixed = data.draw(st.permutations(others)) + mine
    if mine:
        assert choose(pod(), mixed, {}) == choice


RUNTIMES = {runtime.name for runtime in NODE}


def no_needs(_traits: Traits, _handler: str) -> tuple[str, ...]:
    return ()


def test_a_cri_sandbox_chooses_as_a_pod_with_that_runtime_class_does() -> None:
    uid = PodUid("u1")
    for handler, class_name in (
        ("two", "second"),
        ("two--crun", "crun"),
        ("two--gvisor", "odd"),
        ("kvm", "vms"),
    ):
        request = requested_by_sandbox(handler, {}, uid, RUNTIMES)
        assert isinstance(request, RuntimeRequest)
        assert request.uid == uid
        mine = choose_for(request, NODE, no_needs)
        same = choose(pod(runtime_class_name=class_name), NODE, CLASSES)
        assert type(mine) is type(same)
        if isinstance(mine, Chosen) and isinstance(same, Chosen):
            assert (mine.runtime, mine.handler) == (same.runtime, same.handler)
    assert requested_by_sandbox("", {}, uid, RUNTIMES) == RuntimeRequest(uid=uid)


def test_a_cri_sandbox_may_name_its_runtime_and_type_in_annotations() -> None:
    notes = {names.RUNTIME_SERVICE_NAME: "two", names.WORKLOAD_TYPE: "container"}
    request = requested_by_sandbox("", notes, PodUid("u1"), RUNTIMES)
    assert choose_for(request, NODE, no_needs) == Chosen(
        runtime=RuntimeName("two"), why=f"named by annotation {names.RUNTIME_SERVICE_NAME}"
    )
    both = requested_by_sandbox("one", notes, PodUid("u1"), RUNTIMES)
    assert isinstance(both, RejectPod)
    assert both.message.endswith("runtime handler names 'one'; name one")


def test_what_a_workload_lacks_is_asked_for_the_handler() -> None:
    asked: list[str] = []

    def lacking(_traits: Traits, handler: str) -> tuple[str, ...]:
        asked.append(handler)
        return ("sysctls",)

    found = choose_for(requested_by_sandbox("two--crun", {}, PodUid("u1"), RUNTIMES), NODE, lacking)
    assert isinstance(found, WaitForRuntime)
    assert asked == ["crun"]


def test_the_sources_of_a_pods_request_are_in_the_order_of_their_rank() -> None:
    request = requested_runtime(
        pod({names.RUNTIME_SERVICE_NAME: "two"}, runtime_service_name="two", runtime_class_name="crun"),
        CLASSES,
        RUNTIMES,
    )
    assert isinstance(request, RuntimeRequest)
    assert request.handler == "crun"
    assert request.sources == (
        "spec.runtimeServiceName",
        f"annotation {names.RUNTIME_SERVICE_NAME}",
        "spec.runtimeClassName crun",
    )
