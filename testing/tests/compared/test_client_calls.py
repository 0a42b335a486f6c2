"""Calls of `KubeClient` that other programs than the node's agent need."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import Conflict, NotFound, SystemClock
from kubeletx.kube.client import KubeClient, Reflector
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import CONFIG_MAPS, NODES, PODS
from kubeletx.kube.client.statuses import patch_status
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.kube.types.node import Node
from kubeletx_testing.apiserver import ApiClient
from kubeletx_testing.names_sink import NamesSink
from kubeletx_testing.waiting import until
from testing.tests.compared.api_cluster import GUARD_SECONDS, NodeUnderTest, pod


async def test_a_version_that_is_old_deletes_nothing(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    first = admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)["metadata"]
    second = admin.patch("configmaps", "one", {"data": {"a": "b"}}, namespace)["metadata"]
    path = CONFIG_MAPS.path(namespace, "one")
    with pytest.raises(Conflict):
        await client.delete(path, resource_version=first["resourceVersion"])
    with pytest.raises(Conflict):
        await client.delete(path, uid="other", resource_version=second["resourceVersion"])
    await client.delete(path, uid=second["uid"], resource_version=second["resourceVersion"])
    with pytest.raises(NotFound):
        await client.delete(path, resource_version=second["resourceVersion"])


async def test_a_list_comes_in_pages_of_what_both_selectors_take(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    for number in range(5):
        made = pod(f"p{number}", nodeName="node-x" if number < 4 else "node-y")
        made["metadata"]["labels"] = {"app": "web" if number else "db"}
        admin.create("pods", made, namespace)
    pages = [
        [item.metadata.name for item in page.items]
        async for page in list_pages(
            client,
            PODS.path(namespace),
            PodList,
            label_selector="app=web",
            field_selector="spec.nodeName=node-x",
            page_items=2,
        )
    ]
    assert pages == [["p1", "p2"], ["p3"]]


async def test_a_reflector_follows_what_its_label_selector_takes(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    for name, app in (("one", "web"), ("two", "db")):
        made = pod(name)
        made["metadata"]["labels"] = {"app": app}
        admin.create("pods", made, namespace)
    sink = NamesSink()
    reflector = Reflector(
        client, PODS, Pod, sink, clock=SystemClock(), namespace=namespace, label_selector="app=web"
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            await reflector.synced.wait()
            assert sink.names == {"one"}
            admin.patch("pods", "two", {"metadata": {"labels": {"app": "web"}}}, namespace)
            await until(lambda: sink.names == {"one", "two"})
            admin.patch("pods", "one", {"metadata": {"labels": {"app": "db"}}}, namespace)
            await until(lambda: sink.names == {"two"})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_status_is_patched_for_the_object_that_was_meant(
    admin: ApiClient, client: KubeClient, node: NodeUnderTest
) -> None:
    patched = await patch_status(
        client, NODES, node.name, {"capacity": {"example.com/gpu": "2"}}, Node, uid=node.uid
    )
    assert patched.status.capacity["example.com/gpu"] == "2"
    assert not patched.spec.unschedulable
    for wrong in ({"uid": "other"}, {"resource_version": "1"}):
        with pytest.raises(Conflict):
            await patch_status(
                client, NODES, node.name, {"capacity": {"example.com/gpu": "3"}}, Node, **wrong
            )
    found = admin.get("nodes", node.name)
    assert found["status"]["capacity"]["example.com/gpu"] == "2"
