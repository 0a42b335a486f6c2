from __future__ import annotations

from typing import Any

import pytest

from kubeletx.api import InvalidPod, ObjectData
from kubeletx.pods.specs.environment import is_variable_name
from kubeletx.pods.specs.unit import unit_environment
from kubeletx.volumes import ObjectSet
from tests.unit.pods.environment_model import make_node, with_container

OBJECTS = ObjectSet(
    config_maps={"settings": ObjectData(text={"A": "1", "bad=name": "x"}, binary={"BIN": b"\xff"})},
    secrets={"key": ObjectData(binary={"PASSWORD": b"s3cret", "B": b"2"})},
)


def environment(container: dict[str, Any], **options: Any) -> dict[str, str]:
    pod, made = with_container(container)
    return unit_environment(pod, made, make_node(), **{"pod_ips": ("10.0.0.9",), **options})


def test_values_refer_to_what_stands_before_them():
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(C)"},
        {"name": "C", "value": "$$(A)"},
        {"name": "D", "value": "$(B)"},
    ]
    assert environment({"env": env}) == {"A": "1", "B": "1-$(C)", "C": "$(A)", "D": "1-$(C)"}


def test_the_later_of_two_variables_wins():
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "E"}]
    assert environment({"env": env}) == {"A": "12", "E": ""}


def test_fields_and_resources_become_values():
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "ALL", "value": "$(NODE)/$(IP)"},
    ]
    assert environment({"env": env}) == {
        "IP": "10.0.0.9",
        "NODE": "node-1",
        "CPU": "2",
        "ALL": "node-1/10.0.0.9",
    }


def test_a_host_network_pod_has_the_nodes_address():
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    pod, container = with_container({"env": env}, hostNetwork=True)
    assert unit_environment(pod, container, make_node())["IP"] == "192.0.2.1"


def test_sources_come_in_order_services_first_and_own_values_last():
    container = {
        "envFrom": [
            {"configMapRef": {"name": "settings"}, "prefix": "P_"},
            {"secretRef": {"name": "key"}},
            {"configMapRef": {"name": "none", "optional": True}},
        ],
        "env": [
            {"name": "B", "value": "own $(P_A) $(SERVICE)"},
            {"name": "K", "valueFrom": {"secretKeyRef": {"name": "key", "key": "PASSWORD"}}},
            {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
        ],
    }
    services = {"SERVICE": "10.1.1.1", "B": "from service"}
    found = environment(container, objects=OBJECTS, services=services)
    assert found == {
        "SERVICE": "10.1.1.1",
        "B": "own 1 10.1.1.1",
        "P_A": "1",
        "PASSWORD": "s3cret",
        "K": "s3cret",
    }


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"envFrom": [{"configMapRef": {"name": "none"}}]}, "envFrom[0].configMapRef"),
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, "envFrom[0].secretRef"),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}]},
            "env[0].valueFrom.configMapKeyRef",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "none"}}}]},
            "env[0].valueFrom.secretKeyRef",
        ),
        ({"env": [{"name": "A", "valueFrom": {}}]}, "env[0].valueFrom"),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "nonsense"}}}]},
            "env[0].valueFrom.fieldRef.fieldPath",
        ),
    ],
)
@pytest.mark.parametrize("objects", [None, OBJECTS])
def test_a_missing_reference_names_its_place(container, field, objects):
    with pytest.raises(InvalidPod) as caught:
        environment(container, objects=objects)
    assert caught.value.reason == "CreateContainerConfigError"
    assert caught.value.field.startswith(f"spec.containers[0].{field}")


def test_an_optional_reference_of_a_static_pod_is_left_out():
    container = {
        "envFrom": [{"secretRef": {"name": "none", "optional": True}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k", "optional": True}}}],
    }
    assert environment(container) == {}


@pytest.mark.parametrize(
    ("name", "expected"), [("A", True), ("a.b-c", True), ("a=b", False), ("ä", False), ("", False)]
)
def test_keys_that_cannot_be_variables_are_known(name, expected):
    assert is_variable_name(name) is expected


FILE = {"volumeName": "e", "path": "app.env", "key": "A"}


def from_file(tmp_path, text: str | None, **changes: Any) -> dict[str, str]:
    directory = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e"
    directory.mkdir(parents=True)
    if text is not None:
        (directory / "app.env").write_text(text)
    env = [{"name": "X", "valueFrom": {"fileKeyRef": {**FILE, **changes}}}]
    pod, container = with_container({"env": env}, volumes=[{"name": "e", "emptyDir": {}}])
    return unit_environment(pod, container, make_node(root_dir=tmp_path))


def test_a_value_comes_from_a_file_that_an_init_container_wrote(tmp_path):
    assert from_file(tmp_path, "A='one two'\n") == {"X": "one two"}


@pytest.mark.parametrize("text", [None, "B='x'"])
def test_an_optional_key_of_a_file_is_left_out(tmp_path, text):
    assert from_file(tmp_path, text, optional=True) == {}


@pytest.mark.parametrize(
    ("text", "changes", "problem"),
    [
        (None, {}, "there is no 'app.env' in volume 'e'"),
        ("B='x'", {}, "couldn't find key A"),
        ("A=x", {}, "line 1 is not NAME='value'"),
        ("A='x'", {"volumeName": "other"}, "is not an emptyDir of this pod"),
        ("A='x'", {"path": "../../../../../etc/passwd"}, "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, changes, problem):
    with pytest.raises(InvalidPod, match=problem) as caught:
        from_file(tmp_path, text, **changes)
    assert caught.value.reason == "CreateContainerConfigError"
