"""Configurations: what is refused and why, and what holds for a node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.text.yaml import dump_yaml, parse_documents
from kubeletx.remedy.sources import LoadedConfig, load_config

from .config_values import FENCED, fence, loaded, node, problems

Raw = dict[str, Any]


def remedy_config(name: str = "repair", **container: Any) -> Raw:
    made = {"name": "main", "image": "image", **container}
    return {"name": name, "podTemplate": {"spec": {"containers": [made]}}}


def threshold(**changes: Any) -> Raw:
    """Return a threshold; a change that is None removes the field."""
    made = {
        "nodeConditionType": "Ready",
        "nodeConditionStatus": "Unknown",
        "nodeConditionPeriod": "5s",
        "remedy1": {"name": "repair"},
    } | changes
    return {key: value for key, value in made.items() if value is not None}


def document(*thresholds: Raw, **fields: Any) -> str:
    made: Raw = {
        "apiVersion": "node-remedy/v1alpha",
        "kind": "Configuration",
        "thresholdConfigs": list(thresholds) or [threshold()],
        "remedyConfigs": [remedy_config()],
    } | fields
    return dump_yaml(made)


AT = "thresholdConfigs[0]."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"remedy1": {"name": "rapair"}}, "remedy1.name: remedy 'rapair' does not exist; add it to"),
        ({"remedy1": None}, "remedy1: is missing; name the remedy of this threshold"),
        ({"remedy1": {}}, "remedy1.name: is missing; write the name of a remedy"),
        ({"remedy3": {"name": "repair"}}, "remedy3: remedy2 is missing; write it as remedy2"),
        ({"remedyl": {"name": "repair"}}, "remedyl: is not known; write one of"),
        ({"nodeConditionPeriod": "-5s"}, "nodeConditionPeriod: '-5s' is negative; durations start at 0"),
        ({"nodeConditionPeriod": 5}, "nodeConditionPeriod: 5 is not a duration; write it like 5s"),
        ({"nodeConditionPeriod": None}, "nodeConditionPeriod: is missing; write it like 5s"),
        ({"nodeConditionType": None}, "nodeConditionType: is missing"),
        ({"nodeConditionStatus": "bad"}, "nodeConditionStatus: 'bad' is not true, false or Unknown"),
        ({"nodeConditionStatus": True}, "nodeConditionStatus: true is the status of every well node"),
        ({"remedy1": {"name": "repair", "period": "-1m"}}, "remedy1.period: '-1m' is negative"),
        ({"remedy1": [{"name": "repair"}, {"name": "fence"}]}, "remedy1[1].name: is there twice"),
        ({"remedy1": ["repair"]}, "remedy1[0]: 'repair' is not a mapping"),
        ({"remedy1": {"name": "repair", "clean-resource": "no way"}}, "is not true or false"),
        (
            {"remedy1": {"name": "repair", "clean-resource": True, "clean-resourece": True}},
            "remedy1.clean-resourece: is there in two spellings",
        ),
        (
            {"remedy1": {"name": "cordon", "clean-resource": True}},
            "cordon proves nothing about the node's pods",
        ),
        ({"recovery": {"name": "fence"}}, "recovery.name: remedy 'fence' does not exist"),
        (
            {"nodeEventReason": "OOMKilling"},
            "nodeConditionPeriod: is not known; write one of nodeEventReason",
        ),
    ],
)
def test_a_bad_threshold_is_named_by_its_path(changes: Raw, expected: str) -> None:
    found = loaded(document(threshold(**changes)))
    (problem,) = problems(found)
    assert problem.startswith(f"c.yaml: {AT}")
    assert expected in problem
    assert found.configurations.courses(node()) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"thresholdConfigs": []}, "thresholdConfigs: has no threshold"),
        ({"thresholdConfigs": {}}, "thresholdConfigs: a mapping is not a list"),
        ({"nodeSelecter": "a=b"}, "nodeSelecter: is not known; write one of apiVersion"),
        ({"nodeSelector": "compute"}, "nodeSelector: 'compute' is not KEY=VALUE"),
        ({"nodeSelector": {"type": 1}}, "nodeSelector.type: 1 is not a text"),
        ({"kind": "Configurations"}, "kind 'Configurations' is not read"),
        ({"remedyConfigs": [remedy_config(), remedy_config()]}, "[1].name: 'repair' is there twice"),
        ({"remedyConfigs": [remedy_config(), remedy_config("fence")]}, "'fence' is a built-in remedy"),
        ({"remedyConfigs": [remedy_config(), remedy_config("Large")]}, "'Large' is not a name for Jobs"),
        ({"remedyConfigs": [{"name": "repair"}]}, "[0]: has neither podTemplate, external nor plugin"),
        ({"remedyConfigs": [remedy_config() | {"timeout": "0s"}]}, "[0].timeout: is 0; write a time"),
        ({"remedyConfigs": [remedy_config(image="")]}, "containers[0].image: '' is not a text"),
        ({"remedyConfigs": [remedy_config(command="run")]}, "containers[0].command: 'run' is not a list"),
        ({"remedyConfigs": [remedy_config(env=[1])]}, "containers[0].env[0]: 1 is not a text"),
        ({"remedyConfigs": [remedy_config(configmaps="one")]}, "configmaps: 'one' is not a list"),
        ({"remedyConfigs": [{"name": "repair", "podTemplate": {"spec": {}}}]}, "spec.containers: is missing"),
        (
            {"remedyConfigs": [{"name": "repair", "external": {"kind": "X"}}]},
            "external.apiVersion: is missing",
        ),
        ({"remedyConfigs": [{"name": "repair", "plugin": {}}]}, "plugin.name: is missing"),
    ],
)
def test_a_bad_document_is_named_by_its_path(fields: Raw, expected: str) -> None:
    found = loaded(document(**fields))
    (problem,) = problems(found)
    assert problem.startswith("c.yaml")
    assert expected in problem
    assert found.configurations.courses(node()) == []


def test_jobs_that_restart_are_refused() -> None:
    remedy = remedy_config()
    remedy["podTemplate"]["spec"]["restartPolicy"] = "OnFailure"
    (problem,) = problems(loaded(document(remedyConfigs=[remedy])))
    assert "podTemplate.spec.restartPolicy: 'OnFailure' is not Never; write Never" in problem


def test_all_problems_of_a_document_are_reported() -> None:
    bad = document(threshold(remedy1={"name": "x"}), threshold(nodeConditionPeriod="soon"))
    assert [problem.split(":")[1] for problem in problems(loaded(bad))] == [
        " thresholdConfigs[0].remedy1.name",
        " thresholdConfigs[1].nodeConditionPeriod",
    ]


def test_a_condition_has_one_threshold() -> None:
    (problem,) = problems(loaded(document(threshold(), threshold())))
    assert "thresholdConfigs[1]: Ready Unknown has a threshold already" in problem


def test_false_includes_unknown_unless_unknown_has_its_own_threshold() -> None:
    both = loaded(document(threshold(nodeConditionStatus=False), threshold()))
    (alone,) = loaded(FENCED).configurations.courses(node())
    assert alone.threshold.statuses == ("False", "Unknown")
    first, second = both.configurations.courses(node())
    assert (first.threshold.statuses, second.threshold.statuses) == (("False",), ("Unknown",))


def test_a_threshold_of_events_counts_reasons() -> None:
    event: Raw = {"nodeEventReason": "OOMKilling", "nodeEventCount": 3, "nodeEventPeriod": "10m"}
    (found,) = loaded(document(event | {"remedy1": {"name": "cordon"}})).configurations.courses(node())
    assert (found.threshold.event, found.threshold.count, found.threshold.period) == ("OOMKilling", 3, 600.0)
    (course,) = found.courses
    assert [method.name for method in (*course.isolation, *course.recovery)] == [
        "mark-unschedulable",
        "mark-schedulable",
    ]
    (problem,) = problems(loaded(document(event | {"nodeEventCount": 0, "remedy1": {"name": "cordon"}})))
    assert "nodeEventCount: 0 is not a number from 1 to 1000" in problem


def test_remedies_are_in_the_order_of_their_numbers() -> None:
    numbered = {f"remedy{number}": {"name": "repair", "period": f"{number}s"} for number in range(11, 0, -1)}
    (found,) = loaded(document(threshold(**numbered))).configurations.courses(node())
    assert [course.period for course in found.courses] == [*range(1, 12)]


def test_a_remedy_without_a_period_has_the_settle_time() -> None:
    settings = {"remedy-settings": {"settings.properties": "settle_time=7s"}}
    found = loaded(document(), settings)
    assert fence(found).period == 7.0
    assert not fence(found).cleans


def test_fence_releases_pods_unless_the_configuration_says_not() -> None:
    maps = {"fence-config-one": {"config.properties": "isolation=mark-unschedulable"}}
    assert fence(loaded(FENCED, maps)).cleans
    kept = FENCED.replace("{name: fence}", "{name: fence, clean-resource: false}")
    assert not fence(loaded(kept, maps)).cleans


def test_nodes_become_schedulable_after_the_last_recovery() -> None:
    maps = {"fence-config-one": {"config.properties": "recovery=mark-schedulable"}}
    text = document(threshold(remedy1={"name": "fence"}, recovery="repair"))
    assert [method.name for method in fence(loaded(text, maps)).recovery] == ["repair", "mark-schedulable"]
    text = document(threshold(remedy1={"name": "fence"}, recovery="mark-schedulable"))
    assert [method.name for method in fence(loaded(text, maps)).recovery] == ["mark-schedulable"]


def test_the_more_specific_configuration_is_first() -> None:
    files = {
        "all.yaml": document(),
        "large.yaml": document(nodeSelector="type=compute,size=large"),
        "named.yaml": document(nodeSelector={"type": "compute"}, metadata={"name": "compute"}),
    }
    found = load_config(files, {}, LoadedConfig()).configurations
    large, small = ({"type": "compute", "size": size} for size in ("large", "small"))
    assert [one.configuration for one in found.courses(node(labels=large))] == ["large", "compute", "all"]
    assert [one.configuration for one in found.courses(node(labels=small))] == ["compute", "all"]


def test_external_and_plugin_remedies_keep_their_definition() -> None:
    reference = {"apiVersion": "x.io/v1", "kind": "RebootTemplate", "name": "soft"}
    remedies = [
        {"name": "reboot", "external": reference, "timeout": "2m"},
        {"name": "bmc", "plugin": {"name": "redfish", "parameters": {"host": "{{.NodeName}}"}}},
    ]
    text = document(threshold(remedy1={"name": "reboot"}, remedy2={"name": "bmc"}), remedyConfigs=remedies)
    (found,) = loaded(text).configurations.courses(node())
    external, plugin = (course.isolation[0] for course in found.courses)
    assert (external.kind, external.definition, external.seconds) == ("external", reference, 120.0)
    assert (plugin.kind, plugin.definition["name"], plugin.parameters) == (
        "plugin",
        "redfish",
        {"host": "{{.NodeName}}"},
    )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "repair", "5s", "a=b"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "spec", "period", "containers"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.data(), ANYTHING)
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    root = yaml_values(document(threshold(recovery="repair", remedy2=[{"name": "fence"}, {"period": "1m"}])))
    there: Any = root
    while True:
        key = data.draw(st.sampled_from(list(there) if isinstance(there, dict) else range(len(there))))
        if not isinstance(there[key], dict | list) or not there[key] or data.draw(st.booleans()):
            there[key] = value
            break
        there = there[key]
    found = loaded(dump_yaml(root))
    assert found.problems or found.configurations.courses(node())
    assert all(str(problem).startswith("c.yaml") and problem.fix for problem in found.problems)


def yaml_values(text: str) -> Any:
    (raw,) = parse_documents(text)
    return raw
