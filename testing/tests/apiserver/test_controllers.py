"""What the double does in place of controllers: status of budgets, propagation of deletions, protection of volumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.api import SystemClock
from kubeletx.kube.client import BudgetExceeded, KubeClient, TooManyRequests, load_kubeconfig
from kubeletx.kube.client.statuses import evict_pod
from kubeletx_testing.apiserver import ApiServerDouble, StatusError

JOB = {
    "metadata": {"name": "one"},
    "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
    },
}


def pod(api: ApiServerDouble, name: str, ready: str = "True") -> None:
    made = {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], "nodeName": "node"},
    }
    api.admin.create("pods", made, "default")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    api.admin.patch("pods", name, {"status": status}, "default", "status")


def budget(api: ApiServerDouble, **spec: Any) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    made = {"metadata": {"name": "web"}, "spec": {"selector": selector, **spec}}
    api.admin.create("poddisruptionbudgets", made, "default")


def allowed(api: ApiServerDouble) -> tuple[int, int, int]:
    """Allowed disruptions, healthy pods, pods that must stay healthy."""
    status = api.admin.get("poddisruptionbudgets", "web", "default")["status"]
    return status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"]


def evict(api: ApiServerDouble, name: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    api.admin.ask("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({"minAvailable": 2}, (1, 3, 2)),
        ({"minAvailable": "50%"}, (1, 3, 2)),
        ({"maxUnavailable": 1}, (1, 3, 2)),
        ({"maxUnavailable": "100%"}, (3, 3, 0)),
        ({}, (2, 3, 1)),
    ],
)
def test_a_budget_counts_its_pods(api: ApiServerDouble, spec: Any, state: tuple[int, int, int]) -> None:
    for name in ("a", "b", "c"):
        pod(api, name)
    budget(api, **spec)
    assert allowed(api) == state


def test_a_budget_follows_its_pods(api: ApiServerDouble) -> None:
    budget(api, minAvailable=1)
    assert allowed(api)[0] == 0
    pod(api, "a")
    pod(api, "b")
    assert allowed(api) == (1, 2, 1)
    evict(api, "a")
    assert allowed(api) == (0, 1, 1)
    with pytest.raises(StatusError) as error:
        evict(api, "b")
    assert error.value.code == 429
    assert error.value.details is not None
    assert error.value.details["causes"][0]["reason"] == "DisruptionBudget"
    pod(api, "c")
    evict(api, "b")
    api.admin.delete("pods", "b", "default", gracePeriodSeconds=0)
    assert allowed(api) == (0, 1, 1)


def test_a_changed_budget_is_counted_again(api: ApiServerDouble) -> None:
    pod(api, "a")
    budget(api, minAvailable=1)
    assert allowed(api)[0] == 0
    api.admin.patch("poddisruptionbudgets", "web", {"spec": {"minAvailable": 0}}, "default")
    assert allowed(api) == (1, 1, 0)


async def test_throttling_is_not_a_budget(api: ApiServerDouble) -> None:
    pod(api, "a")
    client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=SystemClock())
    try:
        api.faults.fail(429, times=1, path="/eviction", retry_after_seconds=3)
        with pytest.raises(TooManyRequests) as throttled:
            await evict_pod(client, "default", "a")
        assert throttled.value.retry_after_seconds == 3
        budget(api, minAvailable=1)
        with pytest.raises(BudgetExceeded):
            await evict_pod(client, "default", "a")
    finally:
        await client.close()


@pytest.mark.parametrize("policy", [None, "Orphan", "Foreground", "Background"])
def test_a_collector_has_nothing_to_do_here(api: ApiServerDouble, policy: str | None) -> None:
    api.admin.create("jobs", JOB, "default")
    options = {"propagationPolicy": policy} if policy else {}
    api.admin.delete("jobs", "one", "default", **options)
    assert api.admin.list("jobs", "default")["items"] == []


def test_a_table_of_a_kind_has_name_and_age(api: ApiServerDouble) -> None:
    api.admin.create("jobs", JOB, "default")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    jobs = api.admin.send("GET", "/apis/batch/v1/namespaces/default/jobs", headers=accept).json
    assert [column["name"] for column in jobs["columnDefinitions"]] == ["Name", "Age"]
    assert [row["cells"][:-1] for row in jobs["rows"]] == [["one"]]


def test_a_claim_exists_until_its_pod_ends_and_a_bound_volume_until_its_claim_does(
    api: ApiServerDouble,
) -> None:
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    wanted = {"accessModes": modes, "resources": {"requests": size}, "volumeName": "disk"}
    claim = api.admin.create(
        "persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": wanted}, "default"
    )
    bound = {"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
    spec = {"capacity": size, "accessModes": modes, "hostPath": {"path": "/x"}, "claimRef": bound}
    api.admin.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": spec})
    api.admin.patch("persistentvolumes", "disk", {"status": {"phase": "Bound"}}, subresource="status")
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    user = {"nodeName": "node", "containers": [{"name": "c", "image": "busybox"}], "volumes": volumes}
    api.admin.create("pods", {"metadata": {"name": "web"}, "spec": user}, "default")
    for plural, name, namespace in (
        ("persistentvolumes", "disk", ""),
        ("persistentvolumeclaims", "data", "default"),
    ):
        api.admin.delete(plural, name, namespace)
        assert "deletionTimestamp" in api.admin.get(plural, name, namespace)["metadata"]
    api.admin.delete("pods", "web", "default", gracePeriodSeconds=0)
    assert api.admin.list("persistentvolumeclaims", "default")["items"] == []
    assert api.admin.list("persistentvolumes")["items"] == []


def test_a_claim_that_nothing_uses_goes_at_once(api: ApiServerDouble) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "data", "finalizers": ["example.com/hold"]}
    api.admin.create("persistentvolumeclaims", {"metadata": metadata, "spec": spec}, "default")
    api.admin.delete("persistentvolumeclaims", "data", "default")
    held = api.admin.get("persistentvolumeclaims", "data", "default")["metadata"]["finalizers"]
    assert held == ["example.com/hold"]
    api.admin.patch("persistentvolumeclaims", "data", {"metadata": {"finalizers": None}}, "default")
    assert api.admin.list("persistentvolumeclaims", "default")["items"] == []
