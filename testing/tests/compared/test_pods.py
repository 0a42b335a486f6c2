"""Pods: defaults, admission, what is dropped and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import pod, refusal


def path(namespace: str, name: str, subresource: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}/{subresource}"


def test_a_pod_is_completed(admin: ApiClient, namespace: str) -> None:
    made = admin.create("pods", pod("one"), namespace)
    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["enableServiceLinks"] is True
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(toleration["key"], toleration["tolerationSeconds"]) for toleration in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    container = spec["containers"][0]
    assert (container["imagePullPolicy"], container["resources"]) == ("Always", {})
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_pod_gets_the_token_of_its_account(admin: ApiClient, namespace: str) -> None:
    spec = admin.create("pods", pod("one"), namespace)["spec"]
    (volume,) = spec["volumes"]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert volume["name"].startswith("kube-api-access-")
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    token, *rest = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert rest[0]["configMap"]["name"] == "kube-root-ca.crt"


def test_a_pod_may_do_without_a_token(admin: ApiClient, namespace: str) -> None:
    spec = admin.create("pods", pod("one", automountServiceAccountToken=False), namespace)["spec"]
    assert "volumes" not in spec


def test_an_account_must_exist(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("pods", pod("one", serviceAccountName="nobody"), namespace)
    assert refusal(error) == (
        403,
        "Forbidden",
        f'pods "one" is forbidden: error looking up service account {namespace}/nobody: serviceaccount "nobody" '
        "not found",
    )


def test_unknown_fields_are_dropped(admin: ApiClient, namespace: str) -> None:
    made = pod("one", virtualMachine={"image": "x"}, nics=[{"name": "n"}], vpc="v", runtimeServiceName="vm")
    made["spec"]["containers"][0]["unknown"] = 1
    spec = admin.create("pods", made, namespace)["spec"]
    assert not {"virtualMachine", "nics", "vpc", "runtimeServiceName"} & set(spec)
    assert "unknown" not in spec["containers"][0]


def test_requests_follow_limits(admin: ApiClient, namespace: str) -> None:
    made = pod("one")
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    created = admin.create("pods", made, namespace)
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"


def test_a_runtime_class_must_exist(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("pods", pod("one", runtimeClassName="nothing"), namespace)
    assert refusal(error) == (
        403,
        "Forbidden",
        'pods "one" is forbidden: pod rejected: RuntimeClass "nothing" not found',
    )


def test_a_runtime_class_adds_overhead_and_where_to_run(admin: ApiClient, namespace: str) -> None:
    admin.create(
        "runtimeclasses",
        {
            "metadata": {"name": namespace},
            "handler": "vm",
            "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        },
    )
    spec = admin.create("pods", pod("one", runtimeClassName=namespace), namespace)["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "10m"}, {"a": "b"})
    assert spec["tolerations"][-1] == {"key": "k", "operator": "Exists"}


def test_priority_classes_give_priorities(admin: ApiClient, namespace: str) -> None:
    made = admin.create("pods", pod("one", priorityClassName="system-node-critical"), namespace)
    assert made["spec"]["priority"] == 2000001000
    with pytest.raises(StatusError) as error:
        admin.create("pods", pod("two", priorityClassName="nothing"), namespace)
    assert error.value.message == 'pods "two" is forbidden: no PriorityClass with name nothing was found'


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image"),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
            "spec.containers[1].name",
        ),
    ],
)
def test_a_pod_that_breaks_rules_is_invalid(
    admin: ApiClient, namespace: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("pods", {"metadata": {"name": "one"}, "spec": spec}, namespace)
    assert refusal(error)[:2] == (422, "Invalid")
    assert error.value.details is not None
    assert field in [cause["field"] for cause in error.value.details["causes"]]


def test_a_pod_is_bound_once(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one"), namespace)
    binding = {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "node-b"}}
    answer = admin.ask("POST", path(namespace, "one", "binding"), binding)
    assert answer["status"] == "Success"
    assert admin.get("pods", "one", namespace)["spec"]["nodeName"] == "node-b"
    with pytest.raises(StatusError) as error:
        admin.ask("POST", path(namespace, "one", "binding"), binding)
    assert refusal(error) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "one": pod one is already assigned to node "node-b"',
    )


def test_a_pod_without_a_node_has_an_empty_log(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one"), namespace)
    assert admin.send("GET", path(namespace, "one", "log")).code == 204


def test_a_log_of_an_unknown_container_is_refused(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one", nodeName="node-b"), namespace)
    with pytest.raises(StatusError) as error:
        admin.ask("GET", path(namespace, "one", "log"), query={"container": "x"})
    assert refusal(error) == (400, "BadRequest", "container x is not valid for pod one")
