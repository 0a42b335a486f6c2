from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from kubeletx.kube.types import core, event, node
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    EmptyDirVolumeSource,
    ObjectMeta,
    Pod,
    PodList,
    PodSpec,
    PodStatus,
    Volume,
)
from kubeletx.kube.types.meta import ApiStruct, json_name

SPELLED = {
    "pod_ip": "podIP",
    "pod_ips": "podIPs",
    "host_ip": "hostIP",
    "host_pid": "hostPID",
    "host_ipc": "hostIPC",
    "fs_group": "fsGroup",
    "sub_path_expr": "subPathExpr",
    "container_id": "containerID",
    "image_id": "imageID",
    "se_linux_options": "seLinuxOptions",
    "set_hostname_as_fqdn": "setHostnameAsFQDN",
    "downward_api": "downwardAPI",
    "http_get": "httpGet",
    "pod_cidrs": "podCIDRs",
    "system_uuid": "systemUUID",
    "target_wwns": "targetWWNs",
    "run_as_non_root": "runAsNonRoot",
    "app_armor_profile": "appArmorProfile",
    "uid": "uid",
}


@pytest.mark.parametrize("attribute", SPELLED)
def test_json_names_are_upstreams(attribute: str) -> None:
    assert json_name(attribute) == SPELLED[attribute]


def test_the_multi_runtime_fields_keep_their_own_spelling() -> None:
    pod = msgspec.json.decode(
        b'{"spec": {"virtualMachine": {"name": "vm", "keyPairName": "k", "userData": "eA=="}, "vpc": "demo",'
        b' "nics": [{"portId": "p", "ipAddress": "10.0.0.9", "ipv6Enabled": true}],'
        b' "runtimeServiceName": "libvirt-qemu"},'
        b' "status": {"virtualMachineStatus": {"virtualMachineId": "v", "imageId": "i", "powerState": "running"}}}',
        type=Pod,
    )
    (nic,) = pod.spec.nics
    assert (nic.port_id, nic.ip_address, nic.ipv6_enabled) == ("p", "10.0.0.9", True)
    assert pod.spec.runtime_service_name == "libvirt-qemu"
    machine = pod.status.virtual_machine_status
    assert machine is not None
    assert (machine.virtual_machine_id, machine.image_id, machine.power_state) == ("v", "i", "running")


def test_what_is_not_set_is_not_written() -> None:
    pod = Pod(
        metadata=ObjectMeta(name="web"),
        spec=PodSpec(
            containers=(Container(name="c", image="i"),),
            volumes=(Volume(name="v", empty_dir=EmptyDirVolumeSource()),),
        ),
    )
    assert msgspec.json.decode(msgspec.json.encode(pod)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "image": "i"}]},
    }


def test_what_api_clients_rely_on_is_always_written() -> None:
    status = ContainerStatus(name="c", ready=False, restart_count=0, image="", image_id="")
    assert msgspec.json.decode(msgspec.json.encode(status)) == {
        "name": "c",
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }


@pytest.mark.parametrize("kind", [Pod, PodList, node.Node, node.NodeList, event.Event, event.EventList])
def test_top_level_objects_say_what_they_are(kind: type[ApiStruct]) -> None:
    written = msgspec.json.decode(msgspec.json.encode(kind()))
    assert written == {"apiVersion": "v1", "kind": kind.__name__}


def test_unknown_fields_are_ignored() -> None:
    assert (
        msgspec.json.decode(b'{"spec": {"brandNew": 1}, "metadata": {"managedFields": [{}]}}', type=Pod)
        == Pod()
    )


def test_times_are_whole_seconds_in_utc() -> None:
    moment = datetime(2030, 1, 1, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    running = ContainerStateRunning(started_at=moment)
    assert running.started_at == datetime(2030, 1, 1, 10, tzinfo=UTC)
    assert msgspec.json.encode(running) == b'{"startedAt":"2030-01-01T10:00:00Z"}'
    assert (
        msgspec.json.decode(b'{"startedAt": "2030-01-01T12:00:00.5+02:00"}', type=ContainerStateRunning)
        == running
    )


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="startTime has no time zone"):
        PodStatus(start_time=datetime(2030, 1, 1))


def test_an_events_own_time_keeps_its_microseconds() -> None:
    moment = datetime(2030, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    made = event.Event(event_time=moment, last_timestamp=moment)
    assert made.event_time == moment
    assert made.last_timestamp == moment.replace(microsecond=0)


def test_a_pod_names_itself() -> None:
    pod = Pod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
    assert (pod.ref, pod.uid, pod.name, pod.namespace) == ("shop/web", "u1", "web", "shop")


def test_every_type_is_exported_and_frozen() -> None:
    for name in core.__all__:
        kind = getattr(core, name)
        if isinstance(kind, type) and issubclass(kind, ApiStruct):
            assert kind.__struct_config__.frozen
            assert kind.__doc__


def test_pods_do_not_burden_the_garbage_collector() -> None:
    pod = msgspec.json.decode(b'{"spec": {"containers": [{"name": "c"}]}}', type=Pod)
    assert not gc.is_tracked(pod)
    assert not gc.is_tracked(pod.spec.containers[0])
    assert pod.spec.init_containers is pod.spec.volumes


def test_a_container_state_with_nothing_set_is_empty() -> None:
    assert msgspec.json.encode(ContainerState()) == b"{}"
