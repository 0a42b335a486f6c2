"""Conversion both ways, checked by round trips."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import (
    Capabilities,
    Device,
    Dns,
    EnvVar,
    IdMapping,
    ImageAuth,
    ImageSpec,
    Machine,
    Mount,
    MountPropagation,
    NamespaceMode,
    Namespaces,
    PodUid,
    PortMapping,
    Process,
    ProcessSecurity,
    ProfileType,
    Resources,
    SandboxId,
    SandboxSecurity,
    SandboxSpec,
    SecurityProfile,
    SELinuxOptions,
    SourceKind,
    UnitId,
    UnitSpec,
    UnitState,
    Unsupported,
    names,
)
from kubeletx.cri.convert import (
    auth_to_cri,
    image_from_cri,
    image_spec_from_cri,
    image_spec_to_cri,
    resources_from_cri,
    resources_to_cri,
    sandbox_from_cri,
    sandbox_status_from_cri,
    sandbox_summary_from_cri,
    sandbox_to_cri,
    stats_from_cri,
    unit_from_cri,
    unit_status_from_cri,
    unit_summary_from_cri,
    unit_to_cri,
)
from kubeletx.cri.convert.common import legacy_profile_from_cri
from kubeletx.cri.convert.unit import signal_from_cri, signal_to_cri
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

M = TypeVar("M", bound=Message)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
words = text.filter(bool)
tuples = st.lists(text, max_size=3).map(tuple)
maps = st.dictionaries(text, text, max_size=3)
uint32 = st.integers(0, 2**32 - 1)
positive = st.integers(1, 2**40)
maybe = st.none() | positive
ids = st.none() | st.integers(0, 2**31)

id_mappings = st.lists(
    st.builds(IdMapping, host_id=uint32, container_id=uint32, length=uint32), max_size=2
).map(tuple)
namespaces = st.builds(
    Namespaces,
    network=st.sampled_from(NamespaceMode),
    pid=st.sampled_from(NamespaceMode),
    ipc=st.sampled_from(NamespaceMode),
    target_unit=st.none() | words.map(UnitId),
    user=st.none() | id_mappings,
)
profiles = st.none() | st.builds(SecurityProfile, type=st.sampled_from(ProfileType), localhost_ref=text)
selinux = st.none() | st.builds(SELinuxOptions, user=text, role=text, type=text, level=text)
groups = st.lists(st.integers(0, 2**31), max_size=3).map(tuple)

# What CRI cannot say is left at its default: requests, pids, ephemeral storage.
resources = st.builds(
    Resources,
    cpu_shares=maybe,
    cpu_period_us=maybe,
    cpu_quota_us=maybe,
    memory_limit_bytes=maybe,
    memory_swap_limit_bytes=maybe,
    oom_score_adj=st.none() | st.integers(-1000, 1000).filter(bool),
    cpuset_cpus=text,
    cpuset_mems=text,
    hugepage_limits_bytes=st.dictionaries(text, positive, max_size=2),
    unified=maps,
)

sandboxes = st.builds(
    SandboxSpec,
    uid=text.map(PodUid),
    name=text,
    namespace=text,
    attempt=uint32,
    handler=text,
    labels=maps,
    annotations=maps,
    hostname=text,
    dns=st.none() | st.builds(Dns, servers=tuples, searches=tuples, options=tuples),
    ports=st.lists(
        st.builds(
            PortMapping,
            container_port=st.integers(0, 65535),
            host_port=st.integers(0, 65535),
            protocol=st.sampled_from(["TCP", "UDP", "SCTP"]),
            host_ip=text,
        ),
        max_size=2,
    ).map(tuple),
    namespaces=namespaces,
    cgroup_parent=text,
    log_directory=text,
    sysctls=maps,
    security=st.builds(
        SandboxSecurity,
        run_as_user=ids,
        run_as_group=ids,
        supplemental_groups=groups,
        supplemental_groups_strict=st.booleans(),
        privileged=st.booleans(),
        readonly_rootfs=st.booleans(),
        seccomp=profiles,
        apparmor=profiles,
        selinux=selinux,
    ),
    overhead=st.none() | resources,
    resources=st.none() | resources,
)

images = st.builds(ImageSpec, requested=words, ref=text, handler=text, annotations=maps)
mounts = st.builds(
    Mount,
    source=text,
    target=text,
    read_only=st.booleans(),
    recursive_read_only=st.booleans(),
    propagation=st.sampled_from(MountPropagation),
    selinux_relabel=st.booleans(),
    user_mappings=id_mappings,
    group_mappings=id_mappings,
    image=text,
    image_sub_path=text,
)
signals = st.sampled_from([""] + [n.removeprefix("SIGNAL_") for n in pb.Signal.keys()[1:]])
units = st.builds(
    UnitSpec,
    name=text,
    attempt=uint32,
    image=images,
    detail=st.builds(
        Process,
        command=tuples,
        args=tuples,
        working_dir=text,
        stdin=st.booleans(),
        stdin_once=st.booleans(),
        tty=st.booleans(),
        stop_signal=signals,
        devices=st.lists(
            st.builds(Device, container_path=text, host_path=text, permissions=text), max_size=2
        ).map(tuple),
        cdi_devices=tuples,
        security=st.builds(
            ProcessSecurity,
            run_as_user=ids,
            run_as_username=text,
            run_as_group=ids,
            supplemental_groups=groups,
            supplemental_groups_strict=st.booleans(),
            privileged=st.booleans(),
            capabilities=st.builds(Capabilities, add=tuples, drop=tuples),
            readonly_rootfs=st.booleans(),
            no_new_privs=st.booleans(),
            masked_paths=tuples,
            readonly_paths=tuples,
            seccomp=profiles,
            apparmor=profiles,
            selinux=selinux,
            namespaces=namespaces,
        ),
    ),
    environment=st.lists(st.builds(EnvVar, name=text, value=text), max_size=2).map(tuple),
    resources=resources,
    mounts=st.lists(mounts, max_size=2).map(tuple),
    log_path=text,
    labels=maps,
    annotations=maps,
)


def over_the_wire(message: M) -> M:
    """What the other side reads."""
    return type(message).FromString(message.SerializeToString())


def without_derived(value: Resources | None) -> Resources | None:
    if value is None:
        return None
    return msgspec.structs.replace(value, cpu_request_millicores=None, cpu_limit_millicores=None)


@given(sandboxes)
def test_a_sandbox_spec_survives_the_wire(spec: SandboxSpec) -> None:
    back = sandbox_from_cri(over_the_wire(sandbox_to_cri(spec)), spec.handler)
    back = msgspec.structs.replace(
        back, overhead=without_derived(back.overhead), resources=without_derived(back.resources)
    )
    assert back == spec


@given(units)
def test_a_unit_spec_survives_the_wire(spec: UnitSpec) -> None:
    back = unit_from_cri(over_the_wire(unit_to_cri(spec)))
    assert msgspec.structs.replace(back, resources=without_derived(back.resources)) == spec


@given(sandboxes)
def test_a_sandbox_request_made_from_its_own_spec_is_the_same_request(spec: SandboxSpec) -> None:
    config = sandbox_to_cri(spec)
    assert sandbox_to_cri(sandbox_from_cri(config, spec.handler)) == config


@given(units)
def test_a_container_request_made_from_its_own_spec_is_the_same_request(spec: UnitSpec) -> None:
    config = unit_to_cri(spec)
    assert unit_to_cri(unit_from_cri(config)) == config


@given(sandboxes, units)
def test_specs_from_requests_are_plain_data(sandbox: SandboxSpec, unit: UnitSpec) -> None:
    for value in (sandbox_from_cri(sandbox_to_cri(sandbox)), unit_from_cri(unit_to_cri(unit))):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@given(images)
def test_an_image_keeps_its_own_name_beside_the_store_s(image: ImageSpec) -> None:
    message = image_spec_to_cri(image)
    assert message.image == (image.ref or image.requested)
    assert image_spec_from_cri(message) == image


@pytest.mark.parametrize(
    ("cri", "request_millicores", "limit_millicores"),
    [
        (pb.LinuxContainerResources(), None, None),
        (pb.LinuxContainerResources(cpu_shares=2), None, None),
        (pb.LinuxContainerResources(cpu_shares=102), 100, None),
        (pb.LinuxContainerResources(cpu_shares=1024, cpu_quota=50_000, cpu_period=100_000), 1000, 500),
        (pb.LinuxContainerResources(cpu_quota=150_000), None, 1500),
        (pb.LinuxContainerResources(cpu_quota=-1, cpu_period=100_000), None, None),
    ],
)
def test_requests_and_limits_follow_from_shares_and_quota(
    cri: pb.LinuxContainerResources, request_millicores: int | None, limit_millicores: int | None
) -> None:
    resources = resources_from_cri(cri)
    assert resources.cpu_request_millicores == request_millicores
    assert resources.cpu_limit_millicores == limit_millicores
    assert resources_to_cri(resources) == cri


def test_a_block_device_becomes_a_device_of_the_container() -> None:
    mount = Mount(source="/dev/loop0", target="/dev/xvda", kind=SourceKind.BLOCK_DEVICE)
    spec = UnitSpec(name="c", image=ImageSpec(requested="i"), detail=Process(), mounts=(mount,))
    assert list(unit_to_cri(spec).mounts) == []
    assert list(unit_to_cri(spec).devices) == [
        pb.Device(container_path="/dev/xvda", host_path="/dev/loop0", permissions="mrw")
    ]
    read_only = msgspec.structs.replace(mount, read_only=True)
    (device,) = unit_to_cri(msgspec.structs.replace(spec, mounts=(read_only,))).devices
    assert device.permissions == "r"


def test_what_a_container_cannot_be_is_unsupported() -> None:
    image = ImageSpec(requested="i")
    disk = Mount(source="/a.qcow2", target="/dev/vda", kind=SourceKind.DISK_IMAGE)
    for spec in (
        UnitSpec(name="c", image=image, detail=Machine()),
        UnitSpec(name="c", image=image, detail=Process(), mounts=(disk,)),
        UnitSpec(name="c", image=image, detail=Process(stop_signal="SIGNOTHING")),
    ):
        with pytest.raises(Unsupported):
            unit_to_cri(spec)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("SIGTERM", "SIGTERM"),
        ("term", "SIGTERM"),
        ("SIGRTMIN+3", "SIGRTMINPLUS3"),
        ("SIGRTMAX-1", "SIGRTMAXMINUS1"),
        ("SIGRTMINPLUS3", "SIGRTMINPLUS3"),
        ("", ""),
    ],
)
def test_signals_are_read_in_their_usual_spellings(name: str, word: str) -> None:
    assert signal_from_cri(signal_to_cri(name)) == word


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("", None),
        ("unconfined", SecurityProfile(type=ProfileType.UNCONFINED)),
        ("runtime/default", SecurityProfile(type=ProfileType.RUNTIME_DEFAULT)),
        ("docker/default", SecurityProfile(type=ProfileType.RUNTIME_DEFAULT)),
        ("localhost/a/b.json", SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref="a/b.json")),
    ],
)
def test_profiles_in_the_older_form_are_understood(text: str, profile: SecurityProfile | None) -> None:
    assert legacy_profile_from_cri(text) == profile
    context = pb.LinuxContainerSecurityContext(seccomp_profile_path=text, apparmor_profile=text)
    config = pb.ContainerConfig(linux=pb.LinuxContainerConfig(security_context=context))
    detail = unit_from_cri(config).detail
    assert isinstance(detail, Process)
    assert (detail.security.seccomp, detail.security.apparmor) == (profile, profile)


def test_bytes_of_the_environment_that_are_not_text_survive() -> None:
    config = pb.ContainerConfig(envs=[pb.KeyValue(key="A", value=b"\xff\xfe ok")])
    assert list(unit_to_cri(unit_from_cri(config)).envs) == list(config.envs)


def test_a_sandbox_without_addresses_has_none() -> None:
    answer = pb.PodSandboxStatusResponse(status=pb.PodSandboxStatus(id="s"))
    assert sandbox_status_from_cri(answer).ips == ()
    answer.status.network.ip = "10.0.0.1"
    answer.status.network.additional_ips.add(ip="fd00::1")
    assert sandbox_status_from_cri(answer).ips == ("10.0.0.1", "fd00::1")


def test_a_sandbox_on_the_node_s_network_says_so() -> None:
    answer = pb.PodSandboxStatusResponse()
    assert not sandbox_status_from_cri(answer).host_network
    answer.status.linux.namespaces.options.network = pb.NODE
    assert sandbox_status_from_cri(answer).host_network


def test_a_sandbox_without_a_creation_time_has_time_zero() -> None:
    assert sandbox_summary_from_cri(pb.PodSandbox(created_at=-6_795_364_578_871_345_152)).created_at_ns == 0


@pytest.mark.parametrize(
    ("cri", "state", "since_ns", "exit_code"),
    [
        (pb.CONTAINER_CREATED, UnitState.CREATED, 10, None),
        (pb.CONTAINER_RUNNING, UnitState.RUNNING, 20, None),
        (pb.CONTAINER_EXITED, UnitState.EXITED, 30, 7),
        (pb.CONTAINER_UNKNOWN, UnitState.UNKNOWN, 30, None),
    ],
)
def test_a_unit_s_status_says_since_when_and_its_exit_code_once_it_has_one(
    cri: pb.ContainerState, state: UnitState, since_ns: int, exit_code: int | None
) -> None:
    status = pb.ContainerStatus(
        id="c", state=cri, created_at=10, started_at=20, finished_at=30, exit_code=7, image_ref="sha256:1"
    )
    seen = unit_status_from_cri(pb.ContainerStatusResponse(status=status), SandboxId("s"))
    assert (seen.summary.state, seen.since_ns, seen.exit_code) == (state, since_ns, exit_code)
    assert (seen.summary.sandbox_id, seen.summary.image_id) == ("s", "sha256:1")


def test_nothing_ends_before_it_starts() -> None:
    status = pb.ContainerStatus(state=pb.CONTAINER_EXITED, started_at=31, finished_at=30)
    seen = unit_status_from_cri(pb.ContainerStatusResponse(status=status), SandboxId("s"))
    assert (seen.started_at_ns, seen.finished_at_ns) == (30, 30)


def test_granted_limits_are_reported_under_our_names() -> None:
    status = pb.ContainerStatus()
    status.resources.linux.memory_limit_in_bytes = 5
    seen = unit_status_from_cri(pb.ContainerStatusResponse(status=status), SandboxId("s"))
    assert seen.resources == {"memory_limit_bytes": 5}


def test_the_name_in_the_manifest_is_preferred_to_the_store_s() -> None:
    container = pb.Container(image=pb.ImageSpec(image="sha256:1", user_specified_image="web:1"))
    container.labels[names.POD_UID] = "u"
    summary = unit_summary_from_cri(container)
    assert (summary.image, summary.uid) == ("web:1", "u")


def test_a_figure_that_was_not_measured_is_none_and_not_zero() -> None:
    empty = stats_from_cri(pb.ContainerStats())
    assert empty.cpu_usage_core_ns is None
    assert empty.memory_working_set_bytes is None
    assert empty.swap_usage_bytes is None
    zero = pb.ContainerStats(cpu=pb.CpuUsage(timestamp=9, usage_nano_cores=pb.UInt64Value()))
    assert stats_from_cri(zero).cpu_usage_nano_cores == 0
    assert stats_from_cri(zero).at_ns == 9


def test_an_image_s_numeric_user_is_kept_apart_from_none() -> None:
    assert image_from_cri(pb.Image(id="i")).user is None
    assert image_from_cri(pb.Image(id="i", uid=pb.Int64Value(value=0))).user == 0


def test_credentials_are_sent_whole_and_only_when_given() -> None:
    assert auth_to_cri(None) is None
    auth = auth_to_cri(ImageAuth(username="u", password="p", server_address="r"))
    assert auth == pb.AuthConfig(username="u", password="p", server_address="r")


@pytest.mark.parametrize(
    ("message", "is_cut_off"),
    [
        ("failed to create containerd task: failed to create shim task: context canceled: unknown", True),
        (
            "failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown",
            True,
        ),
        ('exec: "nothing": executable file not found in $PATH: unknown', False),
    ],
)
def test_a_start_that_was_broken_off_with_its_caller_is_not_a_run(message: str, is_cut_off: bool) -> None:
    status = pb.ContainerStatus(
        id="c",
        metadata=pb.ContainerMetadata(name="main"),
        state=pb.CONTAINER_EXITED,
        finished_at=5,
        exit_code=128,
        reason="StartError",
        message=message,
    )
    seen = unit_status_from_cri(pb.ContainerStatusResponse(status=status), SandboxId("s"))
    assert (seen.reason == names.START_CUT_OFF) is is_cut_off
    assert seen.exit_code == (None if is_cut_off else 128)
