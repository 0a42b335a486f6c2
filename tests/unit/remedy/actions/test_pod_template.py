"""Translation of an administrator's pod template into a Job."""

from __future__ import annotations

import json
from typing import Any

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.actions.pod_template import (
    DESCRIPTION_FILE,
    REMEDY_NODE,
    REMEDY_STDIN,
    job_manifest,
    job_name,
)
from kubeletx.remedy.model import (
    FenceFlow,
    FenceMethod,
    FenceOperation,
    FlowStep,
    NodeFence,
    NodeView,
    RemedyTask,
)

Json = dict[str, Any]


def pod(template: Json, node: str = "one") -> Json:
    """Return the pod template of the job for this node."""
    task = RemedyTask(
        node=NodeView(metadata=ObjectMeta(name=node, uid="u1", labels={"type": "compute"})),
        fence=NodeFence(
            node=node, flow=FenceFlow(reasons=("DiskPressure=True for 10m",), remedy_name="repair")
        ),
        step=FlowStep.ISOLATION,
        method=FenceMethod(name="repair", kind="job", definition=template),
        operation=FenceOperation(id="op"),
    )
    made: Json = job_manifest(task, "kube-system")["spec"]["template"]
    return made


def one_container(**fields: Any) -> Json:
    return {"spec": {"containers": [{"name": "repair", "image": "repair:1", **fields}]}}


def first(template: Json) -> Json:
    made: Json = pod(template)["spec"]["containers"][0]
    return made


def test_a_command_reads_the_description_of_the_node_from_standard_input() -> None:
    command = first(one_container(command=["repair", "--all"], args=["now"]))["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    assert command[2] == f'exec "$@" < {DESCRIPTION_FILE}'
    assert command[4:] == ["repair", "--all"]


def test_an_image_without_a_shell_keeps_its_command() -> None:
    template = {**one_container(command=["repair"]), "metadata": {"annotations": {REMEDY_STDIN: "false"}}}
    assert first(template)["command"] == ["repair"]
    assert "command" not in first(one_container())


def test_the_description_is_a_downward_file_and_variables() -> None:
    made = pod(one_container(env=[{"name": "NODE_NAME", "value": "mine"}]))
    (volume,) = made["spec"]["volumes"]
    (item,) = volume["downwardAPI"]["items"]
    key = item["fieldRef"]["fieldPath"].partition("'")[2].rstrip("']")
    described = json.loads(made["metadata"]["annotations"][key])
    assert described["node"]["name"] == "one"
    assert described["node"]["labels"] == {"type": "compute"}
    assert described["reasons"] == ["DiskPressure=True for 10m"]
    container = made["spec"]["containers"][0]
    assert f"{container['volumeMounts'][0]['mountPath']}/{item['path']}" == DESCRIPTION_FILE
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert env["NODE_NAME"] == "mine"
    assert env["REMEDY_OPERATION"] == "op"
    assert len(env) == len(container["env"])


def test_the_pod_never_runs_on_the_node_unless_the_template_says_so() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    template = {"spec": {**one_container()["spec"], "affinity": affinity}}
    made = pod(template)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    rule = {"key": "metadata.name", "operator": "NotIn", "values": ["one"]}
    assert made["nodeSelectorTerms"] == [
        {"matchExpressions": [zone], "matchFields": [rule]},
        {"matchFields": [rule]},
    ]
    here = pod({"spec": {**one_container()["spec"], "nodeName": "{{.NodeName}}"}})["spec"]
    assert here["nodeName"] == "one"
    assert "affinity" not in here


def test_a_container_is_never_restarted() -> None:
    assert (
        pod({"spec": {**one_container()["spec"], "restartPolicy": "OnFailure"}})["spec"]["restartPolicy"]
        == "Never"
    )


def test_long_names_fit_into_labels() -> None:
    assert len(pod(one_container(), node="n" * 200)["metadata"]["labels"][REMEDY_NODE]) <= 63
    assert len(job_name("op" * 100, "A Method! " * 20)) <= 55
    assert job_name("a", "x") != job_name("b", "x")
