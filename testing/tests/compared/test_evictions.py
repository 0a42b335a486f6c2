"""Evictions under budgets, as the product's client sees them. No controller runs: the tests set the budgets' statuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.api import Conflict, NotFound, Unavailable
from kubeletx.kube.client import BudgetExceeded, KubeClient, TooManyRequests
from kubeletx.kube.client.statuses import evict_pod
from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import pod, refusal

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def running(admin: ApiClient, namespace: str, name: str = "one", **status: Any) -> dict[str, Any]:
    made = pod(name, nodeName="node-e")
    made["metadata"]["labels"] = {"app": "web"}
    admin.create("pods", made, namespace)
    return admin.patch("pods", name, {"status": {**READY, **status}}, namespace, "status")


def budget(admin: ApiClient, namespace: str, name: str = "web", **status: Any) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    admin.create("poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec}, namespace)
    zero = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    patch = {"status": {**zero, "observedGeneration": 1, **status}}
    admin.patch("poddisruptionbudgets", name, patch, namespace, "status")


def is_marked(admin: ApiClient, namespace: str, name: str = "one") -> bool:
    return "deletionTimestamp" in admin.get("pods", name, namespace)["metadata"]


async def test_a_pod_without_a_budget_is_evicted(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    running(admin, namespace)
    await evict_pod(client, namespace, "one", grace_seconds=7)
    assert admin.get("pods", "one", namespace)["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_used_up_budget_is_not_a_throttling(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    running(admin, namespace)
    budget(admin, namespace)
    with pytest.raises(
        BudgetExceeded, match="The disruption budget web needs 1 healthy pods and has 1 curr"
    ) as error:
        await evict_pod(client, namespace, "one")
    assert not isinstance(error.value, TooManyRequests)
    assert error.value.retry_after_seconds == 0
    assert not is_marked(admin, namespace)


async def test_a_budget_whose_status_is_old_asks_to_wait(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    running(admin, namespace)
    budget(admin, namespace, disruptionsAllowed=1, observedGeneration=0)
    with pytest.raises(BudgetExceeded) as error:
        await evict_pod(client, namespace, "one")
    assert error.value.retry_after_seconds == 10


async def test_an_eviction_uses_the_budget(admin: ApiClient, client: KubeClient, namespace: str) -> None:
    running(admin, namespace)
    running(admin, namespace, "two")
    budget(admin, namespace, disruptionsAllowed=1, currentHealthy=2, expectedPods=2)
    await evict_pod(client, namespace, "one")
    status = admin.get("poddisruptionbudgets", "web", namespace)["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["one"])
    with pytest.raises(BudgetExceeded):
        await evict_pod(client, namespace, "two")
    assert (is_marked(admin, namespace), is_marked(admin, namespace, "two")) == (True, False)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_does_not_run_needs_no_budget(
    admin: ApiClient, client: KubeClient, namespace: str, phase: str
) -> None:
    running(admin, namespace, phase=phase)
    budget(admin, namespace)
    await evict_pod(client, namespace, "one")
    left = admin.list("pods", namespace)["items"]
    assert [one["metadata"].get("deletionTimestamp") is not None for one in left] in ([], [True])
    assert bool(left) == (phase == "Pending")


async def test_an_unready_pod_goes_while_the_others_are_enough(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    running(admin, namespace, conditions=[{"type": "Ready", "status": "False"}])
    budget(admin, namespace, currentHealthy=1, desiredHealthy=1)
    await evict_pod(client, namespace, "one")
    assert is_marked(admin, namespace)
    assert "disruptedPods" not in admin.get("poddisruptionbudgets", "web", namespace)["status"]


async def test_two_budgets_refuse(admin: ApiClient, client: KubeClient, namespace: str) -> None:
    running(admin, namespace)
    budget(admin, namespace, disruptionsAllowed=1)
    budget(admin, namespace, "again", disruptionsAllowed=1)
    with pytest.raises(Unavailable, match="more than one PodDisruptionBudget"):
        await evict_pod(client, namespace, "one")
    assert not is_marked(admin, namespace)


async def test_only_the_pod_that_was_meant_is_evicted(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    found = running(admin, namespace)["metadata"]
    for wrong in ({"uid": "other"}, {"resource_version": "1"}):
        with pytest.raises(Conflict):
            await evict_pod(client, namespace, "one", **wrong)
    await evict_pod(client, namespace, "one", uid=found["uid"], resource_version=found["resourceVersion"])
    with pytest.raises(NotFound):
        await evict_pod(client, namespace, "nobody")


def test_a_budget_has_one_bound(admin: ApiClient, namespace: str) -> None:
    spec = {"minAvailable": 1, "maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    with pytest.raises(StatusError) as error:
        admin.create("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": spec}, namespace)
    assert refusal(error)[:2] == (422, "Invalid")
