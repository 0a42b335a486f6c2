"""Kubernetes objects keep their content between the protobuf and the JSON form; unknown fields stay in the message."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor

from kubeletx.api import InvalidPod
from kubeletx.fornax.convert import config_map_data, fill, node_message, pod_of, secret_data, to_plain
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as core
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node, NodeAddress, NodeSpec, NodeStatus

SPECIAL = ("Time", "Quantity", "IntOrString")


def random_message(message: Any, draw: random.Random, depth: int = 0) -> None:
    """Set about a third of the fields to random values that a Go program may send."""
    for field in message.DESCRIPTOR.fields:
        if field.name == "managedFields" or draw.random() > 0.35 / (1 + depth / 4):
            continue
        kind = field.message_type
        value = getattr(message, field.name)
        if kind is None:
            if field.is_repeated:
                value.extend(scalar(field, draw) for _ in range(2))
            else:
                setattr(message, field.name, scalar(field, draw))
        elif kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"]
            if inner.message_type is None:
                value[word(draw)] = scalar(inner, draw)
            else:
                special(value[word(draw)], draw)
        elif depth < 8:
            for target in [value.add(), value.add()] if field.is_repeated else [value]:
                if kind.name in SPECIAL:
                    special(target, draw)
                else:
                    target.SetInParent()
                    random_message(target, draw, depth + 1)


def word(draw: random.Random) -> str:
    return draw.choice(["a", "b.c", "ü", "$(X)"]) + str(draw.randrange(9))


def scalar(field: FieldDescriptor, draw: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw.randbytes(3)
    if field.type == FieldDescriptor.TYPE_STRING:
        return word(draw)
    return draw.random() < 0.5 if field.type == FieldDescriptor.TYPE_BOOL else draw.randrange(1, 99)


def special(message: Any, draw: random.Random) -> None:
    match message.DESCRIPTOR.name:
        case "Time":
            message.seconds = draw.randrange(1, 1 << 31)
        case "Quantity":
            message.string = f"{draw.randrange(99)}Mi"
        case "IntOrString" if draw.random() < 0.5:
            message.type, message.intVal = 0, draw.randrange(99)
        case "IntOrString":
            message.type, message.strVal = 1, word(draw)
        case _:
            message.SetInParent()
            random_message(message, draw, 9)


@pytest.mark.parametrize("kind", [core.Pod, core.Node, core.ConfigMap, core.Secret])
@pytest.mark.parametrize("seed", range(10))
def test_every_field_survives_both_ways(kind: type[Any], seed: int) -> None:
    message = kind()
    random_message(message, random.Random(seed))
    again = kind()
    fill(again, to_plain(message))
    assert again == message


def test_what_a_go_program_writes_for_an_unset_field_is_not_set() -> None:
    message = core.Pod()
    message.metadata.creationTimestamp.SetInParent()
    message.metadata.generateName = ""
    message.spec.restartPolicy = ""
    message.spec.containers.add(name="c").resources.SetInParent()
    assert to_plain(message) == {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}


def test_fields_that_are_inlined_in_json() -> None:
    message = core.Pod()
    volume = message.spec.volumes.add(name="v").volumeSource.configMap
    volume.localObjectReference.name = "settings"
    container = message.spec.containers.add(name="c")
    container.livenessProbe.handler.tcpSocket.port.type = 1
    container.livenessProbe.handler.tcpSocket.port.strVal = "http"
    container.env.add(name="A.b").valueFrom.secretKeyRef.localObjectReference.name = "s"
    pod = pod_of(message, "core")
    assert pod.spec.volumes[0].config_map is not None
    assert pod.spec.volumes[0].config_map.name == "settings"
    probe = pod.spec.containers[0].liveness_probe
    assert probe is not None
    assert probe.tcp_socket is not None
    assert probe.tcp_socket.port == "http"
    source = pod.spec.containers[0].env[0].value_from
    assert source is not None
    assert source.secret_key_ref is not None
    assert source.secret_key_ref.name == "s"


def test_a_text_that_is_not_utf_8_is_refused_with_its_field() -> None:
    bad = core.Pod.FromString(core.Pod().SerializeToString() + b"\x12\x05\x32\x03a\xff\xfe")
    with pytest.raises(InvalidPod) as caught:
        pod_of(bad, "pod apps/web")
    assert caught.value.field == "spec.dnsPolicy"
    secret = core.Secret(data={"token": b"hidden"}, stringData={"user": "ann"}, type="Opaque")
    assert secret_data(secret).binary == {"token": b"hidden", "user": b"ann"}
    assert "hidden" not in repr(secret_data(secret))
    assert config_map_data(core.ConfigMap(data={"a": "1"}, binaryData={"b": b"\xff"})).as_bytes() == {
        "a": b"1",
        "b": b"\xff",
    }


def test_a_node_is_written_with_its_kubernetes_numbers() -> None:
    status = NodeStatus(
        capacity={"cpu": "4"}, addresses=(NodeAddress(type="InternalIP", address="192.0.2.7"),)
    )
    message = node_message(Node(spec=NodeSpec(pod_cidr="10.0.0.0/24"), status=status))
    assert message.status.capacity["cpu"].string == "4"
    assert message.status.addresses[0].address == "192.0.2.7"
    assert message.spec.podCIDR == "10.0.0.0/24"
    assert msgspec.convert(to_plain(message), Node).status.capacity == {"cpu": "4"}


def test_pods_of_all_types_are_known() -> None:
    assert {field.encode_name for field in msgspec.structs.fields(Pod)} - {"apiVersion", "kind"} == {
        field.name for field in core.Pod.DESCRIPTOR.fields
    }
