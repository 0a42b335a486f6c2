"""Records as custom resources hold the same contract as those of the node's database."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from kubeletx.api import Conflict, Records, SystemClock
from kubeletx.kube.client import KubeClient, Resource
from kubeletx.kube.client.definitions import install_definition
from kubeletx.kube.client.records import CustomResourceRecords, definition
from kubeletx.kube.client.resources import CUSTOM_RESOURCE_DEFINITIONS
from kubeletx.testing.contract import RecordsContract
from kubeletx_testing.apiserver import ApiClient
from kubeletx_testing.apiserver.resources import Resource as ServedResource
from testing.tests.compared.api_cluster import GUARD_SECONDS

_numbers = itertools.count(1)
PLURAL, GROUP, KIND = "contractrecords", "test.example.com", "ContractRecord"
NAMESPACED = Resource(GROUP, "v1", PLURAL)


async def install(client: KubeClient, resource: Resource, kind: str) -> None:
    made = definition(resource, kind=kind, description="A record of a test.")
    async with asyncio.timeout(GUARD_SECONDS):
        await install_definition(client, made, clock=SystemClock())


class TestInNamespaces(RecordsContract):
    """One definition for all tests, a namespace for each."""

    @pytest_asyncio.fixture
    async def open_records(self, client: KubeClient, namespace: str) -> Callable[[], Records]:
        await install(client, NAMESPACED, KIND)
        return lambda: CustomResourceRecords(
            client, NAMESPACED, kind=KIND, clock=SystemClock(), namespace=namespace
        )


class TestOfTheWholeCluster(RecordsContract):
    """A definition for each test, so that none sees records of another."""

    races = 50

    @pytest_asyncio.fixture
    async def open_records(self, client: KubeClient) -> AsyncIterator[Callable[[], Records]]:
        number = next(_numbers)
        resource = Resource(GROUP, "v1", f"clusterrecords{number}s", namespaced=False)
        await install(client, resource, f"ClusterRecord{number}")
        yield lambda: CustomResourceRecords(
            client, resource, kind=f"ClusterRecord{number}", clock=SystemClock()
        )
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{resource.plural}.{GROUP}"))


async def test_what_others_wrote_beside_a_value_stays(
    client: KubeClient, admin: ApiClient, namespace: str
) -> None:
    await install(client, NAMESPACED, KIND)
    records = CustomResourceRecords(client, NAMESPACED, kind=KIND, clock=SystemClock(), namespace=namespace)
    await records.create("one", {"a": 1})
    served = ServedResource(plural=PLURAL, kind=KIND, group=GROUP)
    admin.patch(served, "one", {"metadata": {"labels": {"mine": "yes"}}}, namespace)
    found = await records.get("one")
    await records.replace("one", {"a": 2}, expected_version=found.version)
    assert admin.get(served, "one", namespace)["metadata"]["labels"] == {"mine": "yes"}


@pytest.mark.parametrize("text", ["x", "0x1", "-1", "1.5"])
async def test_no_version_is_invented(client: KubeClient, namespace: str, text: str) -> None:
    await install(client, NAMESPACED, KIND)
    records = CustomResourceRecords(client, NAMESPACED, kind=KIND, clock=SystemClock(), namespace=namespace)
    await records.create("one", {"a": 1})
    with pytest.raises(Conflict):
        await records.replace("one", {"a": 2}, expected_version=text)
