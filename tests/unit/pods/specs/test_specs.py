from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from kubeletx.api import (
    HostEntry,
    ImageStatus,
    InvalidPod,
    LogMode,
    Machine,
    Mount,
    PortMapping,
    Process,
    RuntimeName,
    SandboxSpec,
    Traits,
    UnitSpec,
    names,
)
from kubeletx.kube.manifests.hashes import container_hash
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.pods.specs.inputs import SandboxInputs, UnitInputs
from kubeletx.pods.specs.sandbox import build_sandbox_spec, sandbox_warnings
from kubeletx.pods.specs.unit import build_unit_spec
from tests.unit.pods.environment_model import make_node, make_pod, with_container

RUNTIME = RuntimeName("ctr-a")
IMAGE = ImageStatus(id="sha256:1", ref="sha256:1", user=5)


def sandbox(spec: dict[str, Any] | None = None, **metadata: Any) -> SandboxSpec:
    return build_sandbox_spec(
        SandboxInputs(
            pod=make_pod(spec, **metadata),
            node=make_node(),
            attempt=2,
            handler="runc",
            runtime_name=RUNTIME,
            runtime_kind="containerd",
            workload_type="container",
            source="file",
            spec_hash="h1",
            cgroup_parent="/kubepods/podu1",
        )
    )


def unit(container: dict[str, Any], **options: Any) -> UnitSpec:
    pod, made = with_container(container)
    mounts = options.pop("mounts", ())
    given = {"attempt": 3, "image": IMAGE, "runtime_name": RUNTIME, **options}
    return build_unit_spec(UnitInputs(pod=pod, container=made, node=make_node(), **given), mounts=mounts)


def test_a_sandbox_carries_identity_that_no_manifest_can_change():
    forged = {names.AGENT_ID: "other", names.POD_UID: "other", "app": "web"}
    spec = sandbox(labels=forged, annotations={names.POD_SOURCE: "other", "note": "x"})
    assert spec.labels == {
        "app": "web",
        names.POD_NAME: "web",
        names.POD_NAMESPACE: "shop",
        names.POD_UID: "u1",
        names.AGENT_ID: "agent-1",
        names.RUNTIME_NAME: "ctr-a",
    }
    assert spec.annotations == {
        "note": "x",
        names.POD_SOURCE: "file",
        names.POD_SPEC_HASH: "h1",
        names.POD_GRACE_SECONDS: "30",
        names.RUNTIME_KIND: "containerd",
        names.WORKLOAD_TYPE: "container",
    }
    assert (spec.uid, spec.attempt, spec.handler, spec.cgroup_parent) == ("u1", 2, "runc", "/kubepods/podu1")
    assert spec.log_directory == "/var/log/pods/shop_web_u1"


def test_ports_of_long_running_containers_are_mapped():
    spec = {
        "initContainers": [
            {"name": "i", "ports": [{"containerPort": 1}]},
            {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2}]},
        ],
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1", "protocol": "UDP"}],
            }
        ],
    }
    assert sandbox(spec).ports == (
        PortMapping(container_port=2),
        PortMapping(container_port=80, host_port=8080, protocol="UDP", host_ip="192.0.2.1"),
    )
    assert sandbox({**spec, "hostNetwork": True}).ports == ()


def test_aliases_and_sysctls_are_passed_on():
    spec = sandbox(
        {
            "hostAliases": [{"ip": "203.0.113.7", "hostnames": ["db"]}],
            "securityContext": {
                "sysctls": [
                    {"name": "kernel.shm_rmid_forced", "value": "1"},
                    {"name": "net/ipv4/conf/eth0.1/arp_announce", "value": "2"},
                ]
            },
        }
    )
    assert spec.hosts == (HostEntry(ip="203.0.113.7", names=("db",)),)
    assert spec.sysctls == {"kernel.shm_rmid_forced": "1", "net.ipv4.conf.eth0/1.arp_announce": "2"}


def test_warnings_of_a_sandbox_become_events():
    assert [one.reason for one in sandbox_warnings(make_pod(), make_node(in_cluster=True))] == [
        "MissingClusterDNS"
    ]


@pytest.mark.parametrize("uid", ["..", "a/b", ""])
def test_an_identity_that_is_not_a_plain_name_never_becomes_a_path(uid):
    with pytest.raises(InvalidPod, match="cannot be part of a path"):
        sandbox(uid=uid)


def test_a_unit_carries_what_a_later_agent_needs():
    container = {
        "ports": [{"containerPort": 80}],
        "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}, "stopSignal": "SIGUSR1"},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = unit(container)
    _, made = with_container(container)
    assert spec.labels[names.CONTAINER_NAME] == "c"
    assert (spec.labels[names.AGENT_ID], spec.labels[names.RUNTIME_NAME]) == ("agent-1", "ctr-a")
    assert spec.annotations == {
        names.CONTAINER_HASH: container_hash(made),
        names.CONTAINER_RESTART_COUNT: "3",
        names.CONTAINER_TERMINATION_PATH: "/dev/termination-log",
        names.CONTAINER_TERMINATION_POLICY: "FallbackToLogsOnError",
        names.CONTAINER_PRESTOP: '{"exec":{"command":["stop"]}}',
        names.CONTAINER_PORTS: '[{"containerPort":80}]',
        names.POD_GRACE_PERIOD: "30",
    }
    assert isinstance(spec.detail, Process)
    assert spec.detail.stop_signal == "SIGUSR1"
    assert (spec.attempt, spec.log_path, spec.image.requested, spec.image.ref) == (
        3,
        "c/3.log",
        "app",
        "sha256:1",
    )


def test_commands_and_arguments_are_expanded_with_the_environment():
    spec = unit(
        {
            "command": ["run", "$(A)"],
            "args": ["$$(A)", "$(NONE)"],
            "env": [{"name": "A", "value": "1"}],
            "workingDir": "/w",
            "tty": True,
            "stdin": True,
            "stdinOnce": True,
        }
    )
    assert isinstance(spec.detail, Process)
    assert (spec.detail.command, spec.detail.args) == (("run", "1"), ("$(A)", "$(NONE)"))
    assert (spec.detail.working_dir, spec.detail.tty, spec.detail.stdin, spec.detail.stdin_once) == (
        "/w",
        True,
        True,
        True,
    )
    assert [(one.name, one.value) for one in spec.environment] == [("A", "1")]


def test_mounts_are_those_that_were_prepared():
    mount = Mount(source="/s", target="/t")
    assert unit({}, mounts=[mount]).mounts == (mount,)


def test_a_raw_log_stands_beside_the_log():
    assert unit({}, traits=Traits(log_mode=LogMode.RAW_FILE)).log_path == "c/3.raw"


def test_specs_survive_a_round_trip():
    for spec in (sandbox(), unit({"env": [{"name": "A", "value": "ü"}]})):
        assert msgspec.json.decode(msgspec.json.encode(spec), type=type(spec)) == spec


VM = {
    "containers": [],
    "virtualMachine": {
        "name": "testVM",
        "image": "images.example/disk.img",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "5Gi"}},
    },
    "vpc": "demo",
    "nics": [
        {"portId": "p1"},
        {"name": "data", "subnetName": "s", "ipAddress": "192.0.2.9", "ipv6Enabled": True},
    ],
}


def machine(changes: dict[str, Any] | None = None, **metadata: Any) -> Machine:
    pod = make_pod({**VM, "virtualMachine": {**VM["virtualMachine"], **(changes or {})}}, **metadata)
    assert pod.spec.virtual_machine is not None
    spec = build_unit_spec(
        UnitInputs(
            pod=pod, container=pod.spec.virtual_machine, node=make_node(), attempt=0, runtime_name=RUNTIME
        )
    )
    assert (spec.name, spec.image.requested) == ("testVM", "images.example/disk.img")
    assert (spec.resources.cpu_limit_millicores, spec.resources.memory_limit_bytes) == (1000, 1 << 30)
    assert isinstance(spec.detail, Machine)
    return spec.detail


def test_a_virtual_machine_becomes_a_machine():
    found = machine()
    assert (found.hostname, found.vpc, found.power, found.firmware) == ("testvm", "demo", "running", "bios")
    assert found.root_size_bytes == 5 << 30
    assert found.keep_disk
    assert [(one.name, one.port_id, one.network, one.ip_address, one.ipv6) for one in found.nics] == [
        ("eth0", "p1", "", "", False),
        ("data", "", "s", "192.0.2.9", True),
    ]


def test_settings_of_a_machine_come_from_its_annotations():
    annotations = {"kubeletx.io/vm-disk-size": "10Gi", "kubeletx.io/vm-firmware": "uefi", "other": "x"}
    annotations["kubeletx.io/vm-cpu-model"] = "host"
    found = machine({"keyPairName": "k", "shutdownBehavior": "terminate"}, annotations=annotations)
    assert (found.root_size_bytes, found.firmware, found.keep_disk) == (10 << 30, "uefi", False)
    assert set(found.settings) == {"kubeletx.io/vm-cpu-model", names.VM_KEY_PAIR}


def test_a_machine_written_as_one_container_is_the_same_machine():
    notes = {
        names.WORKLOAD_TYPE: "vm",
        names.VM_POWER: "Paused",
        names.VM_SSH_KEYS: "ssh-ed25519 x\nssh-ed25519 y\n",
        names.VM_USER_DATA: "#cloud-config\n",
        names.VM_META_DATA: '{"local": {"a": 1}}',
        names.VM_SHUTDOWN_BEHAVIOR: "terminate",
        names.VM_NICS: '[{"portId": "p1"}, {"name": "data", "subnetName": "s"}]',
        names.VM_VPC: "demo",
        names.VM_DISK_SIZE: "5Gi",
        names.VM_MAX_CPUS: "4",
        names.VM_MAX_MEMORY: "4Gi",
        names.VM_CERTIFICATES: "a\nb",
    }
    pod = make_pod({"containers": [{"name": "guest", "image": "disk.img"}]}, annotations=notes)
    written = machine_of(pod)
    assert written is not None
    spec = build_unit_spec(
        UnitInputs(pod=pod, container=written, node=make_node(), attempt=0, runtime_name=RUNTIME)
    )
    found = spec.detail
    assert isinstance(found, Machine)
    assert (spec.name, spec.image.requested, found.power) == ("guest", "disk.img", "paused")
    assert (found.hostname, found.vpc, found.keep_disk) == (pod.name, "demo", False)
    assert found.cloud_init.user_data == b"#cloud-config\n"
    assert found.cloud_init.meta_data == {"local": {"a": 1}}
    assert found.cloud_init.ssh_keys == ("ssh-ed25519 x", "ssh-ed25519 y")
    assert [(nic.name, nic.port_id, nic.network) for nic in found.nics] == [
        ("eth0", "p1", ""),
        ("data", "", "s"),
    ]
    assert (found.root_size_bytes, found.max_vcpus, found.max_memory_bytes) == (5 << 30, 4, 4 << 30)
    assert found.settings == {names.VM_CERTIFICATES: "a\nb"}


def test_a_container_is_a_machine_only_where_its_pod_or_its_runtime_says_so():
    pod = make_pod({"containers": [{"name": "guest", "image": "disk.img"}]})
    assert machine_of(pod) is None
    found = machine_of(pod, on_vm_runtime=True)
    assert found is not None
    assert found.name == "guest"


def test_user_data_is_decoded():
    data = base64.b64encode(b"#cloud-config").decode()
    found = machine({"userData": data, "publicKey": "ssh-ed25519 x", "cloudInitUserDataScript": "echo"})
    assert found.cloud_init.user_data == b"#cloud-config"
    assert (found.cloud_init.script, found.cloud_init.ssh_keys) == ("echo", ("ssh-ed25519 x",))


@pytest.mark.parametrize(
    ("power", "expected"),
    [("Running", "running"), ("Paused", "paused"), ("Suspended", "suspended"), ("Shutdown", "off")],
)
def test_power_is_translated(power, expected):
    assert machine({"powerSpec": power}).power == expected


@pytest.mark.parametrize(
    ("changes", "annotations"),
    [
        ({"powerSpec": "Asleep"}, {}),
        ({"userData": "not base64!"}, {}),
        ({}, {"kubeletx.io/vm-disk-size": "big"}),
    ],
)
def test_what_a_machine_cannot_be_is_refused(changes, annotations):
    with pytest.raises(InvalidPod) as caught:
        machine(changes, annotations=annotations)
    assert caught.value.reason == "CreateContainerConfigError"


def test_a_sandbox_for_a_machine_has_its_size():
    found = sandbox(VM).resources
    assert found is not None
    assert (found.cpu_limit_millicores, found.memory_limit_bytes) == (1000, 1 << 30)
