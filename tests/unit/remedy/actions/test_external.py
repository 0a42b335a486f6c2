"""Remedies of other operators: one object per operation, whose conditions are the result."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kubeletx.kube.client import Resource
from kubeletx.remedy.actions.external import NODE_NAME, TEMPLATE_NAME, TIMED_OUT, ExternalAction
from kubeletx.remedy.actions.pod_template import REMEDY_OPERATION
from kubeletx.remedy.model import FenceProof, MethodResult, RemedyTask
from kubeletx_testing.apiserver import StatusError
from kubeletx_testing.apiserver.faults import Rule
from kubeletx_testing.waiting import until
from tests.unit.remedy.actions.remedy_cluster import NODE, POLL_SECONDS, Json, RemedyCluster

GROUP: Final = "self-node-remediation.medik8s.io"
OPERATOR_NAMESPACE: Final = "operators"
REMEDIATIONS: Final = Resource(GROUP, "v1alpha1", "selfnoderemediations")
TEMPLATES: Final = Resource(GROUP, "v1alpha1", "selfnoderemediationtemplates")
REFERENCE: Final = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "name": "automatic",
    "namespace": OPERATOR_NAMESPACE,
}
SHORT_SECONDS: Final = 0.5


def definition(of: Resource, kind: str) -> Json:
    """Return a definition as the operator installs it, with a schema that accepts everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": of.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{of.plural}.{of.group}"},
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {"plural": of.plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


class Operator:
    """The operator of the template: its resources, and what it writes."""

    def __init__(self, cluster: RemedyCluster) -> None:
        self._cluster, self._admin = cluster, cluster.admin
        self.action = ExternalAction(
            cluster.client, clock=cluster.clock, namespace="default", poll_seconds=POLL_SECONDS
        )
        self._admin.create("namespaces", {"metadata": {"name": OPERATOR_NAMESPACE}})
        for of, kind in ((TEMPLATES, "SelfNodeRemediationTemplate"), (REMEDIATIONS, "SelfNodeRemediation")):
            self._admin.create("customresourcedefinitions", definition(of, kind))
        spec = {"template": {"spec": {"remediationStrategy": "Automatic", "host": "{{.NodeName}}-bmc"}}}
        metadata = {"name": "automatic"}
        self._ask(
            "POST",
            TEMPLATES,
            "",
            {**self._head("SelfNodeRemediationTemplate"), "metadata": metadata, "spec": spec},
        )

    @staticmethod
    def _head(kind: str) -> Json:
        return {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind}

    def _ask(self, method: str, of: Resource, name: str, value: Any = None) -> Json:
        path = of.path(OPERATOR_NAMESPACE, name)
        return self._admin.ask(
            method, path, value, "application/merge-patch+json" if method == "PATCH" else "application/json"
        )

    def create(self, annotations: Json) -> Json:
        """Create a remediation object for the node, as its owner does."""
        metadata = {"name": NODE, "annotations": annotations}
        return self._ask(
            "POST", REMEDIATIONS, "", {**self._head("SelfNodeRemediation"), "metadata": metadata}
        )

    def find(self) -> Json | None:
        try:
            return self._ask("GET", REMEDIATIONS, NODE)
        except StatusError:
            return None

    async def found(self, **wanted: str) -> Json:
        """Return the remediation object once it exists, for this operation if one is given."""

        def is_there() -> bool:
            found = self.find()
            return found is not None and all(
                found["metadata"]["annotations"][REMEDY_OPERATION] == value for value in wanted.values()
            )

        await until(is_there)
        found = self.find()
        assert found is not None
        return found

    def patch(self, change: Json) -> None:
        self._ask("PATCH", REMEDIATIONS, NODE, change)

    def report(self, status: str, type_: str = "Succeeded") -> None:
        condition = {"type": type_, "status": status, "reason": "Told", "message": "by the test"}
        self.patch({"status": {"conditions": ["nonsense", condition]}})

    def delete(self) -> None:
        self._ask("DELETE", REMEDIATIONS, NODE)

    def task(self, operation: str = "op-1", **fields: Any) -> RemedyTask:
        return self._cluster.task(operation, **{"kind": "external", "definition": REFERENCE, **fields})


@pytest.fixture
def operator(cluster: RemedyCluster) -> Operator:
    return Operator(cluster)


async def test_the_object_is_made_from_the_template_for_this_node(
    cluster: RemedyCluster, operator: Operator
) -> None:
    run = cluster.start(operator.action.run(operator.task(proof=FenceProof.POWER)))
    found = await operator.found()
    assert found["spec"] == {"remediationStrategy": "Automatic", "host": f"{NODE}-bmc"}
    assert found["metadata"]["annotations"] == {
        REMEDY_OPERATION: "op-1",
        NODE_NAME: NODE,
        TEMPLATE_NAME: "automatic",
    }
    operator.report("True", "Processing")
    operator.report("True")
    outcome = await run
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))


async def test_an_operator_that_gives_up_has_failed(cluster: RemedyCluster, operator: Operator) -> None:
    run = cluster.start(operator.action.run(operator.task(proof=FenceProof.POWER)))
    await operator.found()
    operator.report("False")
    outcome = await run
    assert (outcome.result, outcome.proofs) == (MethodResult.FAILED, ())
    assert "by the test" in outcome.message


async def test_an_object_without_a_result_is_unknown_and_the_operator_stops(operator: Operator) -> None:
    operator.create({REMEDY_OPERATION: "op-1"})
    outcome = await operator.action.run(operator.task(is_repeat=True, seconds=SHORT_SECONDS))
    assert outcome.result is MethodResult.UNKNOWN
    assert TIMED_OUT in (await operator.found())["metadata"]["annotations"]


async def test_a_deleted_object_is_unknown_and_not_created_again(
    cluster: RemedyCluster, operator: Operator
) -> None:
    run = cluster.start(operator.action.run(operator.task()))
    await operator.found()
    operator.delete()
    assert (await run).result is MethodResult.UNKNOWN
    assert (await operator.action.run(operator.task(is_repeat=True))).result is MethodResult.UNKNOWN
    assert operator.find() is None


async def test_a_new_leader_finds_the_object(cluster: RemedyCluster, operator: Operator) -> None:
    first = cluster.start(operator.action.run(operator.task()))
    made = await operator.found()
    first.cancel()
    operator.report("True")
    assert (await operator.action.run(operator.task(is_repeat=True))).result is MethodResult.DONE
    assert (await operator.found())["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_object_of_an_earlier_operation_is_replaced_when_it_is_gone(
    cluster: RemedyCluster, operator: Operator
) -> None:
    operator.create({REMEDY_OPERATION: "op-0"})
    operator.patch({"metadata": {"finalizers": ["example.com/undo"]}})
    run = cluster.start(operator.action.run(operator.task()))
    await until(lambda: "deletionTimestamp" in (operator.find() or {})["metadata"])
    operator.patch({"metadata": {"finalizers": None}})
    await operator.found(operation="op-1")
    operator.report("True")
    assert (await run).result is MethodResult.DONE


async def test_an_object_of_another_controller_is_left_alone(operator: Operator) -> None:
    operator.create({"owner": "node-healthcheck-operator"})
    outcome = await operator.action.run(operator.task())
    assert outcome.result is MethodResult.FAILED
    assert "another controller" in outcome.message
    task = operator.task()
    await operator.action.clean(task.node, task.method)
    assert TIMED_OUT not in (await operator.found())["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "missing"}, "missing"),
        ({"kind": "Nonsense"}, "ends with Template"),
        ({"kind": "OtherTemplate"}, "install the operator"),
        ({"apiVersion": "other.example.com/v1"}, "404"),
    ],
)
async def test_a_template_that_is_missing_creates_nothing(
    operator: Operator, wrong: Json, words: str
) -> None:
    outcome = await operator.action.run(operator.task(definition={**REFERENCE, **wrong}))
    assert outcome.result is MethodResult.FAILED
    assert words in outcome.message
    assert operator.find() is None


async def test_an_object_that_is_refused_has_not_acted(cluster: RemedyCluster, operator: Operator) -> None:
    cluster.api.faults.add(Rule(code=422, methods=("POST",), path=REMEDIATIONS.plural))
    outcome = await operator.action.run(operator.task())
    assert outcome.result is MethodResult.FAILED
    assert "cannot be created" in outcome.message


async def test_the_object_is_deleted_when_the_flow_has_ended(operator: Operator) -> None:
    operator.create({REMEDY_OPERATION: "op-1"})
    task = operator.task()
    await operator.action.clean(task.node, task.method)
    assert operator.find() is None
    await operator.action.clean(task.node, task.method)
