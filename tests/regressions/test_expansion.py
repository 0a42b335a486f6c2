"""A manifest of a kilobyte never becomes gigabytes: every text that a pod can multiply has an upper bound."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubeletx.api import ImageStatus, InvalidPod, ObjectData, ObjectRef, PodUid, RuntimeName, names
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.text.expansion import MAX_STRING_BYTES, MAX_TOTAL_BYTES, TooLong, expand, expand_strictly
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import validate_pod
from kubeletx.node.events import MAX_MESSAGE, EventRecorder
from kubeletx.pods.admission.chain import check_own
from kubeletx.pods.model.backoff import RetryPolicy, next_failure
from kubeletx.pods.specs.inputs import UnitInputs
from kubeletx.pods.specs.unit import build_unit_spec, unit_environment
from kubeletx.testing.clock import FakeClock
from kubeletx.volumes import ObjectSet
from kubeletx.volumes.env_file import MAX_FILES
from kubeletx.volumes.kinds.payload import MAX_VOLUME_BYTES
from kubeletx.volumes.layout import EMPTY_DIR, volume_dir
from tests.unit.kube.pod_text import pod_from
from tests.unit.pods.environment_model import make_node, with_container
from tests.unit.volumes.volume_doubles import FakeCluster, make_pod, make_preparer

KIB = "x" * 1024


def doubling(levels: int) -> list[dict[str, str]]:
    """Each variable is the one before it, twice."""
    first = {"name": "A0", "value": "x" * 10}
    return [first, *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, levels))]


def environment(container: dict[str, Any], **options: Any) -> dict[str, str]:
    pod, made = with_container(container)
    return unit_environment(pod, made, make_node(), **options)


def test_variables_that_double_each_other_are_refused_where_a_program_could_not_start():
    with pytest.raises(InvalidPod, match=r"spec\.containers\[0\]\.env\[14\]\.value.*131072 bytes") as caught:
        environment({"env": doubling(40)})
    assert caught.value.reason == "CreateContainerConfigError"


def test_variables_that_are_short_each_but_not_together_are_refused():
    start = doubling(13)
    copies = [{"name": f"B{n}", "value": "$(A12)"} for n in range(MAX_TOTAL_BYTES // (10 << 12) + 1)]
    with pytest.raises(InvalidPod, match=r"more than 6291456 bytes together"):
        environment({"env": [*start, *copies]})
    assert len(environment({"env": [*start, *copies[:50]]})) == 63


def test_commands_and_arguments_count_with_the_variables():
    def words(field: str, word: str, count: int) -> None:
        pod, container = with_container({"env": doubling(13), field: [word] * count})
        build_unit_spec(
            UnitInputs(
                pod=pod,
                container=container,
                node=make_node(),
                attempt=0,
                image=ImageStatus(id="i", ref="i"),
                runtime_name=RuntimeName("a"),
            )
        )

    words("command", "$(A12)", 10)
    for field in ("command", "args"):
        with pytest.raises(InvalidPod, match=rf"spec\.containers\[0\]\.{field}\[0\]: has more than"):
            words(field, "$(A12)" * 4, 1)
        with pytest.raises(InvalidPod, match=rf"spec\.containers\[0\]\.{field}: .* together"):
            words(field, "$(A12)" * 3, 60)


def test_a_large_value_of_an_object_is_refused_with_the_variable_that_takes_it():
    objects = ObjectSet(config_maps={"big": ObjectData(text={"K": KIB * 200})})
    reference = {"configMapKeyRef": {"name": "big", "key": "K"}}
    with pytest.raises(InvalidPod, match=r"env\[0\]\.valueFrom: variable 'V' has 204803 bytes"):
        environment({"env": [{"name": "V", "valueFrom": reference}]}, objects=objects)
    with pytest.raises(InvalidPod, match=r"envFrom\[0\]: variable 'K'"):
        environment({"envFrom": [{"configMapRef": {"name": "big"}}]}, objects=objects)


def test_a_variable_as_long_as_the_kernel_takes_is_given_to_the_container():
    value = "x" * (MAX_STRING_BYTES - len("V=\0"))
    assert environment({"env": [{"name": "V", "value": value}]}) == {"V": value}
    with pytest.raises(InvalidPod, match="variable 'V' has 131073 bytes"):
        environment({"env": [{"name": "V", "value": f"{value}x"}]})


def test_references_that_never_end_take_time_that_grows_with_the_text_alone():
    text = "$(" * (MAX_STRING_BYTES // 2)
    begun_at = time.process_time()
    assert expand(text, {}) == text
    assert expand(f"$(A){text[8:]}$$", {"A": "b"}) == f"b{text[8:]}$"
    assert time.process_time() - begun_at < 0.5


def test_ten_thousand_variables_do_not_hold_up_the_loop():
    env = [{"name": f"V{n}", "value": "$(V0)$(NONE)"} for n in range(10_000)]
    begun_at = time.process_time()
    assert len(environment({"env": env}, services={f"S{n}": "1" for n in range(1000)})) == 11_000
    assert time.process_time() - begun_at < 1.5


def test_an_expanded_path_is_no_longer_than_a_path_may_be():
    with pytest.raises(TooLong, match="more than 10 bytes"):
        expand_strictly("$(A)/$(A)", {"A": "xxxxx"}, at_most=10)
    assert expand_strictly("$(A)/$(A)", {"A": "xxxx"}, at_most=10) == "xxxx/xxxx"


def static_problems(container: dict[str, Any]) -> list[str]:
    spec = {"containers": [{"name": "c", "image": "i", **container}], "volumes": [{"name": "v"}]}
    pod = set_defaults(pod_from({"metadata": {"name": "web"}, "spec": spec}))
    return [f"{one.field}: {one.problem}" for one in validate_pod(pod, "web.yaml")]


def test_a_static_pod_that_would_grow_is_refused_before_anything_is_made():
    assert static_problems({"env": doubling(14)}) == []
    (problem,) = static_problems({"env": doubling(27)})
    assert problem.startswith("spec.containers[0].env[14].value: '$(A13)$(A13)' has more than")
    (problem,) = static_problems({"env": doubling(14), "args": ["ok", "$(A13)$(A13)"]})
    assert problem.startswith("spec.containers[0].args[1]: ")
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(A9)"}
    (problem,) = static_problems({"env": doubling(14), "volumeMounts": [mount]})
    assert problem.startswith(
        "spec.containers[0].volumeMounts[0].subPathExpr: '$(A9)' has more than 4095 bytes"
    )
    (problem,) = static_problems({"env": doubling(13), "command": ["$(A12)"] * 160})
    assert problem == "spec.containers[0]: command, args and env have more than 6291456 bytes together"


def pod_of(count: int) -> Pod:
    """A pod whose containers have 2 MiB of arguments each."""
    containers = [
        {"name": f"c{n}", "image": "i", "env": doubling(13), "args": ["$(A12)"] * 51} for n in range(count)
    ]
    return set_defaults(pod_from({"metadata": {"name": "web"}, "spec": {"containers": containers}}))


def test_the_containers_of_a_pod_that_would_grow_together_are_refused_before_anything_is_made():
    problem = (
        "spec.containers: command, args and env of all containers have more than 16777216 bytes together"
    )
    assert validate_pod(pod_of(7), "web.yaml") == ()
    (found,) = validate_pod(pod_of(250), "web.yaml")
    assert f"{found.field}: {found.problem}" == problem
    assert check_own(pod_of(7)) is None
    begun_at = time.process_time()
    rejection = check_own(pod_of(250))
    assert time.process_time() - begun_at < 0.5
    assert rejection is not None
    assert rejection.reason == "FailedValidation"
    assert problem in rejection.message


def test_a_static_pods_values_from_elsewhere_are_not_guessed():
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert static_problems({"env": [node], "args": ["$(NODE)" * 1000, "$(UNKNOWN)" * 1000]}) == []


async def test_a_downward_api_volume_does_not_repeat_large_annotations_without_end(tmp_path):
    reference = {"fieldPath": "metadata.annotations"}
    items = [{"path": f"f{n}", "fieldRef": reference} for n in range(1000)]
    pod = make_pod(
        {"volumes": [{"name": "info", "downwardAPI": {"items": items}}]}, annotations={"note": KIB * 100}
    )
    with pytest.raises(InvalidPod, match=rf"has files of .* more than {MAX_VOLUME_BYTES}") as caught:
        await make_preparer(tmp_path).prepare(pod)
    assert caught.value.reason == names.Event.FAILED_MOUNT


async def test_a_projected_volume_does_not_repeat_a_config_map_without_end(tmp_path):
    cluster = FakeCluster()
    cluster.config_maps["big"] = ObjectData(text={"K": KIB * 1000})
    sources = [{"configMap": {"name": "big", "items": [{"key": "K", "path": f"f{n}"}]}} for n in range(40)]
    pod = make_pod({"volumes": [{"name": "all", "projected": {"sources": sources}}]})
    with pytest.raises(InvalidPod, match=r"has files of .*\.projected\)"):
        await make_preparer(tmp_path).prepare(pod, cluster)


def test_environment_files_are_read_once_each_and_only_some(tmp_path):
    directory = volume_dir(tmp_path, PodUid("u1"), EMPTY_DIR, "v")
    directory.mkdir(parents=True)
    for number in range(MAX_FILES + 1):
        (directory / f"f{number}").write_text("K='v'\n")

    def read(files: int, variables: int) -> dict[str, str]:
        env = [
            {
                "name": f"V{n}",
                "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": f"f{n % files}", "key": "K"}},
            }
            for n in range(variables)
        ]
        pod, container = with_container({"env": env}, volumes=[{"name": "v", "emptyDir": {}}])
        return unit_environment(pod, container, make_node(root_dir=tmp_path))

    assert len(read(MAX_FILES, 10 * MAX_FILES)) == 10 * MAX_FILES
    with pytest.raises(InvalidPod, match="one more than the 32 files"):
        read(MAX_FILES + 1, MAX_FILES + 1)


def test_messages_of_events_and_failures_do_not_repeat_a_tenants_text_whole():
    recorder = EventRecorder(clock=FakeClock(), node_name="n")
    recorder.record(ObjectRef(kind="Pod", name="web"), type="Warning", reason="Failed", message=KIB * 1024)
    (event,) = recorder.list_events()
    assert event.message is not None
    assert len(event.message) == MAX_MESSAGE
    assert event.message.endswith("x...")
    failure = next_failure(
        None, RetryPolicy(initial_seconds=10, cap_seconds=300), reason="Failed", message=KIB * 1024, now=0.0
    )
    assert len(failure.message) == MAX_MESSAGE


def test_references_to_containers_of_a_large_pod_do_not_hold_up_the_loop():
    many = [{"name": f"c{n}", "image": "i"} for n in range(4000)]
    reference = {"resourceFieldRef": {"containerName": "c3999", "resource": "limits.cpu"}}
    env = [{"name": f"V{n}", "valueFrom": reference} for n in range(4000)]
    pod, container = with_container({"name": "main", "env": env}, initContainers=many)
    begun_at = time.process_time()
    assert set(unit_environment(pod, container, make_node()).values()) == {"2"}
    assert time.process_time() - begun_at < 1.0


def test_errors_of_a_large_pod_do_not_repeat_all_its_volumes():
    mounts = [{"name": f"w{n}", "mountPath": f"/m{n}"} for n in range(2000)]
    spec = {
        "containers": [{"name": "c", "image": "i", "volumeMounts": mounts}],
        "volumes": [{"name": f"v{n}"} for n in range(2000)],
    }
    pod = set_defaults(pod_from({"metadata": {"name": "web"}, "spec": spec}))
    begun_at = time.process_time()
    problems = validate_pod(pod, "web.yaml")
    assert time.process_time() - begun_at < 1.5
    assert len(problems) == 2000
    assert max(len(str(one)) for one in problems) < 300
    assert str(problems[0]).endswith("(v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, ...)")
