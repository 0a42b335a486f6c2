"""Lists: selectors, pages, versions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Pod
from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.names_sink import NamesSink
from testing.tests.compared.api_cluster import GUARD_SECONDS, pod, refusal, version_now


@pytest.fixture
def labelled(admin: ApiClient, namespace: str) -> str:
    """Config maps k0 to k4; ``l`` is 0 or 1, ``x`` is there; kube-root-ca.crt has no labels."""
    for number in range(5):
        labels = {"l": str(number % 2), "x": "y"}
        admin.create("configmaps", {"metadata": {"name": f"k{number}", "labels": labels}}, namespace)
    return namespace


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("l=1", ["k1", "k3"]),
        ("l==0,x=y", ["k0", "k2", "k4"]),
        ("l!=1", ["k0", "k2", "k4", "kube-root-ca.crt"]),
        ("l in (0, 1)", ["k0", "k1", "k2", "k3", "k4"]),
        ("l notin (0)", ["k1", "k3", "kube-root-ca.crt"]),
        ("!x", ["kube-root-ca.crt"]),
        ("x", ["k0", "k1", "k2", "k3", "k4"]),
    ],
)
def test_label_selectors(admin: ApiClient, labelled: str, selector: str, names: list[str]) -> None:
    listed = admin.list("configmaps", labelled, labelSelector=selector)
    assert [item["metadata"]["name"] for item in listed["items"]] == names


def test_pages_go_on_where_they_stopped(admin: ApiClient, labelled: str) -> None:
    first = admin.list("configmaps", labelled, limit="4")
    admin.delete("configmaps", "k4", labelled)
    rest = admin.list("configmaps", labelled, limit="4", **{"continue": first["metadata"]["continue"]})
    assert first["metadata"]["remainingItemCount"] == 2
    assert [item["metadata"]["name"] for item in rest["items"]] == ["k4", "kube-root-ca.crt"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in rest["metadata"]


def test_version_zero_knows_no_pages(admin: ApiClient, labelled: str) -> None:
    assert len(admin.list("configmaps", labelled, limit="2", resourceVersion="0")["items"]) == 6


def test_an_exact_version_shows_the_past(admin: ApiClient, labelled: str) -> None:
    version = version_now(admin, "configmaps", labelled)
    admin.delete("configmaps", "k0", labelled)
    query = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    listed = admin.list("configmaps", labelled, labelSelector="x", **query)
    assert listed["items"][0]["metadata"]["name"] == "k0"
    assert listed["metadata"]["resourceVersion"] == version


def test_a_version_from_the_future_is_too_large(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.list("pods", namespace, resourceVersion="99999999")
    assert refusal(error)[:2] == (504, "Timeout")
    assert error.value.details is not None
    assert error.value.details["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersion": "abc"},
        {"fieldSelector": "spec.unknown=x"},
        {"labelSelector": "a b"},
        {"continue": "zzz"},
    ],
)
def test_bad_queries_are_refused(admin: ApiClient, namespace: str, query: dict[str, str]) -> None:
    with pytest.raises(StatusError) as error:
        admin.list("pods", namespace, **query)
    assert error.value.code == 400


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_an_exact_match_needs_a_version(admin: ApiClient, namespace: str, query: dict[str, str]) -> None:
    with pytest.raises(StatusError) as error:
        admin.list("pods", namespace, resourceVersionMatch="Exact", **query)
    assert error.value.code == 422


def test_pods_are_selected_by_node_name_and_phase(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one", nodeName="node-a"), namespace)
    admin.create("pods", pod("two", nodeName="node-b"), namespace)
    admin.patch("pods", "two", {"status": {"phase": "Running"}}, namespace, "status")

    def names(selector: str) -> list[str]:
        items = admin.list("pods", namespace, fieldSelector=selector)["items"]
        return [item["metadata"]["name"] for item in items]

    assert names("spec.nodeName=node-a") == ["one"]
    assert names("spec.nodeName!=node-a") == ["two"]
    assert names("status.phase=Running") == ["two"]
    assert names("metadata.name=two,spec.nodeName=node-a") == []


def test_items_of_a_list_have_no_kind(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one"), namespace)
    listed = admin.list("pods", namespace)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    assert "apiVersion" not in listed["items"][0]


def test_a_version_with_a_limit_is_exact_unless_it_says_otherwise(admin: ApiClient, labelled: str) -> None:
    version = version_now(admin, "configmaps", labelled)
    admin.delete("configmaps", "k0", labelled)
    exact = admin.list("configmaps", labelled, limit="1", resourceVersion=version)
    assert exact["items"][0]["metadata"]["name"] == "k0"
    assert exact["metadata"]["resourceVersion"] == version
    later = admin.list(
        "configmaps", labelled, limit="1", resourceVersion=version, resourceVersionMatch="NotOlderThan"
    )
    assert later["items"][0]["metadata"]["name"] == "k1"


def test_pages_of_a_selection_do_not_say_how_many_are_left(admin: ApiClient, labelled: str) -> None:
    first = admin.list("configmaps", labelled, limit="2", labelSelector="x")
    assert "remainingItemCount" not in first["metadata"]
    token = first["metadata"]["continue"]
    rest = admin.list("configmaps", labelled, labelSelector="x", **{"continue": token})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["k2", "k3", "k4"]


async def test_a_thousand_pods_are_the_same_at_once_and_in_pages(
    server: Any, admin: ApiClient, namespace: str
) -> None:
    wanted = {f"p{number:04}" for number in range(1000)}
    kubeconfig: Path = server.admin_kubeconfig()
    client, found = KubeClient(load_kubeconfig(kubeconfig), clock=SystemClock()), NamesSink()
    path, slots = PODS.path(namespace), asyncio.Semaphore(16)

    async def make(name: str) -> None:
        async with slots:
            await client.create(path, pod(name, nodeName="thousand"), Pod)

    async with asyncio.timeout(3 * GUARD_SECONDS), asyncio.TaskGroup() as group:
        for name in sorted(wanted):
            group.create_task(make(name))
    first = admin.list("pods", namespace, limit="400")
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (400, 600)
    admin.delete("pods", "p0999", namespace, gracePeriodSeconds=0)
    second = admin.list("pods", namespace, limit="400", **{"continue": first["metadata"]["continue"]})
    last = admin.list("pods", namespace, limit="400", **{"continue": second["metadata"]["continue"]})
    pages = [item["metadata"]["name"] for page in (first, second, last) for item in page["items"]]
    assert pages == sorted(wanted), "all pages show the moment of the first"
    wanted.discard("p0999")
    selector = "spec.nodeName=thousand"
    followed = Reflector(client, PODS, Pod, found, clock=SystemClock(), field_selector=selector)
    async with asyncio.timeout(GUARD_SECONDS):
        for version in ("0", ""):
            found.names = set()
            await followed._list(version)
            assert found.names == wanted, version or "in pages"
    await client.close()
