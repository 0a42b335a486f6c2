from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.load import load_pods

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "c"}]},
}


def refusal(data: bytes) -> InvalidPod:
    with pytest.raises(InvalidPod) as caught:
        load_pods(data, "web.yaml")
    return caught.value


def test_json_and_yaml_give_the_same_pod() -> None:
    yaml = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c\n"
    flow = b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}]}}"
    (pod,) = load_pods(json.dumps(POD).encode(), "x")
    assert load_pods(yaml, "x") == load_pods(flow, "x") == [pod]
    assert pod.spec.containers[0].name == "c"


def test_a_byte_order_mark_is_not_content() -> None:
    assert load_pods(b"\xef\xbb\xbf" + json.dumps(POD).encode(), "x")[0].name == "web"


def test_several_documents_and_lists_are_sets_of_pods() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [POD, POD]}
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "bare"}}]}
    data = "\n---\n".join(json.dumps(part) for part in (POD, listed, pods)).replace("{", "{ ")
    assert [pod.name for pod in load_pods(b"# all\n" + data.encode(), "x")] == ["web", "web", "web", "bare"]
    assert load_pods(b'{"apiVersion": "v1", "kind": "List"}', "x") == []


def test_null_means_not_given_and_in_lists_and_maps_an_empty_value() -> None:
    text = b"""
apiVersion: v1
kind: Pod
metadata: {name: web, creationTimestamp: null, labels: {a: }}
spec:
  volumes:
  containers: [{name: c, args: [a, null], ports: , resources: {limits: {cpu: , memory: 1Gi}}}]
"""
    (pod,) = load_pods(text, "x")
    assert pod.metadata.creation_timestamp is None
    assert pod.metadata.labels == {"a": ""}
    assert pod.spec.volumes == ()
    assert pod.spec.containers[0].args == ("a", "")
    assert pod.spec.containers[0].resources.limits == {"cpu": "0", "memory": "1Gi"}


def test_quantities_may_be_written_as_numbers() -> None:
    text = b"""
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  overhead: {cpu: 0.5}
  containers: [{name: c, resources: {limits: {cpu: 1, memory: 1000000}, requests: {cpu: 250m}}}]
  volumes: [{name: v, emptyDir: {sizeLimit: 1024}}]
"""
    (pod,) = load_pods(text, "x")
    assert pod.spec.overhead == {"cpu": "0.5"}
    assert pod.spec.containers[0].resources.limits == {"cpu": "1", "memory": "1000000"}
    assert pod.spec.volumes[0].empty_dir is not None
    assert pod.spec.volumes[0].empty_dir.size_limit == "1024"


def test_the_status_of_an_exported_pod_is_left_out() -> None:
    (pod,) = load_pods(json.dumps({**POD, "status": {"phase": 7}}).encode(), "x")
    assert pod.status.phase is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"hostNetwork": "no"},
            "spec.hostNetwork: 'no' is not true or false; write true or false without quotes",
        ),
        ({"priority": "1"}, "spec.priority: '1' is not an integer; write a whole number without quotes"),
        ({"priority": 1.5}, "spec.priority: 1.5 is not an integer; write a whole number"),
        ({"priority": True}, "spec.priority: true is not an integer; write a whole number"),
        (
            {"nodeSelector": {"a": "b", "c": 1}},
            "spec.nodeSelector[c]: 1 is not a string; put the value in quotes",
        ),
        ({"affinity": []}, "spec.affinity: a list is not a mapping; write key: value pairs"),
        (
            {"volumes": "x" * 80},
            f"spec.volumes: {'x' * 80!r:.57}... is not a list; start each entry with '- '",
        ),
        (
            {"containers": [{}, {"livenessProbe": {"httpGet": {"port": 1.5}}}]},
            "spec.containers[1].livenessProbe.httpGet.port: 1.5 is not an integer or a string; "
            "put the value in quotes",
        ),
    ],
)
def test_a_wrong_type_names_field_value_and_fix(spec: dict[str, object], message: str) -> None:
    error = refusal(json.dumps({**POD, "spec": spec}).encode())
    assert str(error) == f"web.yaml (pod web): {message}"


def test_a_wrong_time_names_its_field() -> None:
    error = refusal(json.dumps({**POD, "metadata": {"creationTimestamp": "noon"}}).encode())
    assert str(error) == (
        "web.yaml: metadata.creationTimestamp: 'noon': invalid RFC3339 encoded datetime; correct the value"
    )


def test_an_error_inside_a_list_names_the_item() -> None:
    bad = {**POD, "spec": {"containers": {}}}
    error = refusal(json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD, bad]}).encode())
    assert error.field == "items[1].spec.containers"
    other = refusal(b'{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1"}]}')
    assert str(other) == "web.yaml: items[0].kind: is missing; write kind: Pod"
    bare = refusal(b'{"apiVersion": "v1", "kind": "PodList", "items": 5}')
    assert str(bare) == "web.yaml: items: is not a list; write a list of pods"
    item = refusal(b'{"apiVersion": "v1", "kind": "PodList", "items": [5]}')
    assert str(item) == "web.yaml: items[0]: 5 is not a mapping; write a v1 Pod"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": NaN}', "web.yaml: has the value NaN, which is not JSON; correct the JSON"),
        (b'{"a": {"b": 1, "b": 2}}', "web.yaml: has the key 'b' twice; correct the JSON"),
        (b'{"a": ' * 100_000, "web.yaml: is nested too deep; correct the JSON"),
        (b"", "web.yaml: holds no pod; write a v1 Pod"),
        (b"- a", "web.yaml: ['a'] is not a mapping; write a v1 Pod"),
    ],
)
def test_text_that_is_not_a_manifest_is_refused(data: bytes, message: str) -> None:
    assert str(refusal(data)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        load_pods(data, "x")
    except InvalidPod as err:
        assert "\n" not in str(err)  # noqa: PT017


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["containers", "volumes", "securityContext", "priority", "os", "nodeSelector"]),
    json_values,
)
def test_any_value_in_a_field_is_read_or_refused_with_that_field(field: str, value: object) -> None:
    try:
        load_pods(json.dumps({**POD, "spec": {field: value}}).encode(), "x")
    except InvalidPod as err:
        assert err.field.startswith(f"spec.{field}")  # noqa: PT017


@pytest.mark.parametrize("kind", ["[Pod]", "{Pod: 1}", "3"])
def test_a_kind_that_is_not_text_is_refused_like_any_other(kind: str) -> None:
    error = refusal(f"{{apiVersion: v1, kind: {kind}, metadata: {{name: web}}}}".encode())
    assert error.field == "kind"
