"""Statuses that an API server refuses, of pods and of nodes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import STRATEGIC
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal

AGAIN = "Forbidden: may not be transitioned to non-terminated state"
RUNNING = {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
_NUMBERS = itertools.count(1)


def bound(admin: ApiClient, namespace: str, **spec: Any) -> str:
    """The name of a new pod on a node."""
    name = f"pod-{next(_NUMBERS)}"
    admin.create("pods", pod(name, nodeName="node-s", **spec), namespace)
    return name


def ended(code: int) -> dict[str, Any]:
    times = {"startedAt": "2030-01-01T00:00:00Z", "finishedAt": "2030-01-01T00:00:01Z"}
    return {"terminated": {"exitCode": code, "reason": "Ended", **times}}


def container(state: dict[str, Any], name: str = "c") -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def tell(admin: ApiClient, namespace: str, name: str, status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = admin.patch("pods", name, {"status": status}, namespace, "status", STRATEGIC)
    return found


def causes(error: pytest.ExceptionInfo[StatusError]) -> list[tuple[str, str]]:
    """Fields and messages."""
    return [(cause["field"], cause["message"]) for cause in (error.value.details or {})["causes"]]


@pytest.mark.parametrize("state", [RUNNING, WAITING])
@pytest.mark.parametrize(
    ("policy", "code", "own", "may"),
    [
        ("Always", 0, None, True),
        ("OnFailure", 0, None, False),
        ("OnFailure", 1, None, True),
        ("Never", 1, None, False),
        ("Always", 1, "Never", False),
        ("Never", 0, "Always", True),
        ("Never", 1, "OnFailure", True),
    ],
)
def test_a_container_leaves_its_end_where_its_policy_lets_it(
    admin: ApiClient,
    namespace: str,
    policy: str,
    code: int,
    own: str | None,
    may: bool,
    state: dict[str, Any],
) -> None:
    one = {"name": "c", "image": "i", **({"restartPolicy": own} if own else {})}
    name = bound(admin, namespace, restartPolicy=policy, containers=[one])
    tell(admin, namespace, name, {"phase": "Running", "containerStatuses": [container(ended(code))]})
    again = {"containerStatuses": [container(state)]}
    if may:
        assert "terminated" not in tell(admin, namespace, name, again)["status"]["containerStatuses"][0]
        return
    with pytest.raises(StatusError) as error:
        tell(admin, namespace, name, again)
    assert causes(error) == [("status.containerStatuses[0].state", AGAIN)]
    tell(admin, namespace, name, {"containerStatuses": [container(ended(code + 1))]})


@pytest.mark.parametrize(("action", "code", "may"), [("Restart", 42, True), ("Restart", 1, False)])
def test_rules_on_exit_codes_let_a_container_run_again(
    admin: ApiClient, namespace: str, action: str, code: int, may: bool
) -> None:
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
    one = {"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    name = bound(admin, namespace, restartPolicy="Never", containers=[one])
    tell(admin, namespace, name, {"containerStatuses": [container(ended(code))]})
    if may:
        tell(admin, namespace, name, {"containerStatuses": [container(RUNNING)]})
        return
    with pytest.raises(StatusError, match="may not be transitioned"):
        tell(admin, namespace, name, {"containerStatuses": [container(RUNNING)]})


def test_an_init_container_that_is_done_stays_so(admin: ApiClient, namespace: str) -> None:
    inits = [{"name": "i", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}]
    name = bound(admin, namespace, restartPolicy="OnFailure", initContainers=inits)
    both = [container(ended(0), "i"), container(ended(0), "s")]
    tell(admin, namespace, name, {"initContainerStatuses": both})
    tell(admin, namespace, name, {"initContainerStatuses": [both[0], container(RUNNING, "s")]})
    with pytest.raises(StatusError) as error:
        tell(admin, namespace, name, {"initContainerStatuses": [container(RUNNING, "i"), both[1]]})
    assert causes(error) == [("status.initContainerStatuses[0].state", AGAIN)]


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"observedGeneration": -1}, "status.observedGeneration"),
        ({"qosClass": "Guaranteed"}, "status.qosClass"),
        ({"conditions": [{"type": "not one", "status": "True"}]}, "status.conditions[0].Type"),
        ({"podIPs": [{"ip": "nowhere"}]}, "status.podIPs[0]"),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}, "status.podIPs"),
        ({"hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.1"}]}, "status.hostIPs[0].ip"),
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}, "status.hostIPs"),
    ],
)
def test_a_status_that_breaks_rules_is_invalid(
    admin: ApiClient, namespace: str, status: dict[str, Any], field: str
) -> None:
    name = bound(admin, namespace)
    with pytest.raises(StatusError) as error:
        tell(admin, namespace, name, status)
    assert [where for where, _ in causes(error)] == [field]


def test_of_two_addresses_that_differ_the_single_one_counts(admin: ApiClient, namespace: str) -> None:
    name = bound(admin, namespace)
    reported = tell(admin, namespace, name, {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.1"}]})
    assert reported["status"]["podIPs"] == [{"ip": "10.0.0.9"}]


@pytest.mark.parametrize("status", [{"containerStatuses": [{"allocatedResources": {"cpu": "much"}}]}])
def test_an_amount_that_is_none_is_invalid(admin: ApiClient, namespace: str, status: dict[str, Any]) -> None:
    name = bound(admin, namespace)
    broken = [{**container(RUNNING), **status["containerStatuses"][0]}]
    with pytest.raises(StatusError, match="quantities must match") as error:
        tell(admin, namespace, name, {"containerStatuses": broken})
    assert refusal(error)[:2] == (422, "Invalid")


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ({"capacity": {"cpu": "-1"}}, ["status.capacity.cpu", "status.allocatable.cpu"]),
        ({"addresses": [{"type": "Hostname", "address": "a"}] * 2}, ["status.addresses[1]"]),
        ({"declaredFeatures": ["Later", "Earlier"]}, ["status.declaredFeatures[1]"]),
        ({"declaredFeatures": ["not one"]}, ["status.declaredFeatures[0]"]),
    ],
)
def test_a_status_of_a_node_that_breaks_rules_is_invalid(
    node: NodeUnderTest, status: dict[str, Any], fields: list[str]
) -> None:
    if "addresses" in status:
        status = {"addresses": [*status["addresses"], {"$patch": "replace"}]}
    with pytest.raises(StatusError) as error:
        node.client.patch("nodes", node.name, {"status": status}, "", "status", STRATEGIC)
    assert [where for where, _ in causes(error)] == fields


@pytest.mark.parametrize("labels", [{"a": "not one"}, {"not one": "a"}])
def test_a_label_that_is_none_is_invalid(admin: ApiClient, namespace: str, labels: dict[str, str]) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("configmaps", {"metadata": {"name": "labelled", "labels": labels}}, namespace)
    assert [where for where, _ in causes(error)] == ["metadata.labels"]


def test_a_priority_is_not_for_who_makes_a_pod(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError, match="the integer value of priority") as error:
        admin.create("pods", pod("eager", priority=5), namespace)
    assert refusal(error)[:2] == (403, "Forbidden")
