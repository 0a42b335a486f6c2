"""The same tests against the double and against a real kube-apiserver with etcd.

Where they differ the double is wrong. The real one is taken from the directory that KUBEBUILDER_ASSETS names; without it
its half is skipped. One server of each kind serves the whole run, so every test has a namespace and a node
of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx_testing.apiserver import ApiClient, ApiServerDouble, Settings, StatusError
from kubeletx_testing.apiserver.client import Of
from kubeletx_testing.lab.kube_apiserver import KubeApiServer, missing_binaries
from kubeletx_testing.waiting import let_others_work
from testing.tests.compared.api_cluster import NodeUnderTest, Watch, Watching

Server = ApiServerDouble | KubeApiServer
BARE = Settings(controllers=False, auto_approve=False)
"""No controllers, as beside the real one."""
_NUMBERS = itertools.count(1)
KINDS = [
    pytest.param("double"),
    pytest.param(
        "real",
        marks=[
            pytest.mark.apiserver,
            pytest.mark.skipif(bool(missing_binaries()), reason=missing_binaries()),
        ],
    ),
]


@pytest.fixture(scope="session", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A started API server with the namespace of node leases."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    made = KubeApiServer(directory) if request.param == "real" else ApiServerDouble(directory, BARE)
    with made as one:
        _ensure(one.admin, "namespaces", "kube-node-lease")
        yield one


@pytest.fixture
def admin(server: Server) -> ApiClient:
    """A client that may do everything."""
    return server.admin


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[KubeClient]:
    """The product's client, which may do everything."""
    access = load_kubeconfig(await asyncio.to_thread(server.admin_kubeconfig))
    made = KubeClient(access, clock=SystemClock())
    yield made
    await made.close()
    for _ in range(20):  # TLS of connections that a test left a moment ago ends on both sides
        await let_others_work()


@pytest.fixture
def namespace(admin: ApiClient) -> str:
    """A namespace of its own, with what the controllers of a cluster put into it."""
    name = f"test-{next(_NUMBERS)}"
    _ensure(admin, "namespaces", name)
    _ensure(admin, "serviceaccounts", "default", name)
    _ensure(admin, "configmaps", "kube-root-ca.crt", name)
    return name


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Begins watches, which end with the test."""
    with ExitStack() as ends:

        def begin(client: ApiClient, plural: Of, namespace: str = "", **query: str) -> Watching:
            made = Watching(client, plural, namespace, **query)
            ends.callback(made.close)
            return made

        yield begin


@pytest.fixture
def node(server: Server) -> NodeUnderTest:
    """A node of its own."""
    name = f"node-{next(_NUMBERS)}"
    return NodeUnderTest(name, server.node_client(name))


def _ensure(admin: ApiClient, plural: str, name: str, namespace: str = "") -> None:
    try:
        admin.create(plural, {"metadata": {"name": name}}, namespace)
    except StatusError as err:
        if err.reason != "AlreadyExists":
            raise
