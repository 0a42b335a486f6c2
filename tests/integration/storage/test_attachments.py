"""Attachment records with several clients: of an API server, a double and a real one, and of one file of a machine."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.background import Attachments
from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.attachments.definitions import definitions, rights
from kubeletx_flexvolume.attachments.garbage import GarbageLists
from kubeletx_flexvolume.attachments.stale import Scanner
from kubeletx_flexvolume.attachments.stores import open_stores

from kubeletx.api import Conflict, NotFound, SystemClock
from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.apiserver.kubeconfig import write_kubeconfig
from kubeletx_testing.lab.kube_apiserver import KubeApiServer, missing_binaries
from kubeletx_testing.waiting import block_until
from plugins.flexvolume.tests.attachments.cluster_model import RECORDS, USER, add_node, grants
from script.benchmarks import storage_records
from tests.integration.storage.taker import NoVolumes, attempt, holder, volume

pytestmark = pytest.mark.integration

ROUNDS = (100, pytest.param(1000, marks=pytest.mark.long))
KILLS = (10, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(600)]))  # each imports the agent
AT_ONCE = 8
ROOT = Path(__file__).resolve().parents[3]
Server = ApiServerDouble | KubeApiServer
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": RBAC + "/namespaces/{namespace}/roles",
    "RoleBinding": RBAC + "/namespaces/{namespace}/rolebindings",
}
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


# --- one API server ---


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with the manifests of the storage agents and two nodes."""
    directory = tmp_path_factory.mktemp(request.param)
    made = KubeApiServer(directory) if request.param == "real" else ApiServerDouble(directory)
    with made as one:
        for definition in definitions():
            one.admin.create("customresourcedefinitions", definition)
        block_until(lambda: one.admin.send("GET", RECORDS.path()).code == 200)
        if isinstance(one, ApiServerDouble):
            one.admin.create("namespaces", {"metadata": {"name": "kubeletx-storage"}})
            for grant in grants(USER):
                one.grant(grant)
        else:
            for value in rights():
                path = PATHS[value["kind"]].format(namespace=value["metadata"].get("namespace", ""))
                one.admin.ask("POST", path, value)
        for name in ("n1", "n2"):
            add_node(one.admin, name)
        yield one


@pytest.fixture(scope="module")
def kubeconfig(server: Server) -> Path:
    """The kubeconfig of the storage identity, which has the rights of the manifests and no more."""
    pair = server.authority.client(USER, ["system:serviceaccounts"])
    path = write_kubeconfig(server.directory / "storage.kubeconfig", server.url, server.ca_file, pair)
    storage = server.client(pair)

    def may_read() -> bool:  # RBAC of a real server takes effect a moment later
        return storage.send("GET", RECORDS.path()).code == 200

    block_until(may_read)
    return path


@contextlib.asynccontextmanager
async def agent(node: str, directory: Path, **store: Any) -> AsyncIterator[Attachments]:
    state = directory / f"state-{node}"
    state.mkdir(exist_ok=True, mode=0o700)
    config = AgentConfig(node_name=node, boot_id=f"{node}-boot", state_dir=state, **store)
    made = Attachments(config, backends={}, local=NoVolumes, blocking=asyncio.to_thread, clock=SystemClock())
    try:
        await made.before_serving()
        yield made
    finally:
        await made.close()


async def race(made: dict[str, Attachments], rounds: int) -> None:
    """Let all agents take each volume at the same time. Fails unless exactly one of them wins each time."""
    numbers = iter(range(rounds))

    async def run() -> None:
        for number in numbers:
            name = f"race-{number}"
            ends = await asyncio.gather(*(attempt(one, node, name) for node, one in made.items()))
            assert sorted(ends) == ["lost", "won"], name
            winner = next(node for node, end in zip(made, ends, strict=True) if end == "won")
            assert await made[winner].book.holds(volume(name), holder(winner))
            await made[winner].book.release(volume(name), holder(winner))

    await asyncio.gather(*(run() for _ in range(AT_ONCE)))


@pytest.mark.timeout(600)  # a real server writes each change to its disk
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_two_clients_of_an_api_server_never_both_win(
    kubeconfig: Path, tmp_path: Path, rounds: int
) -> None:
    async with (
        agent("n1", tmp_path, storage_kubeconfig=kubeconfig) as one,
        agent("n2", tmp_path, storage_kubeconfig=kubeconfig) as other,
    ):
        await race({"n1": one, "n2": other}, rounds)


async def test_the_lock_of_a_deleted_node_is_broken(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    add_node(server.admin, "n3")
    async with (
        agent("n3", tmp_path, storage_kubeconfig=kubeconfig) as one,
        agent("n2", tmp_path, storage_kubeconfig=kubeconfig) as other,
    ):
        await one.book.take(volume("moves"), holder("n3"))
        with pytest.raises(Conflict, match="on node n3"):
            await other.book.take(volume("moves"), holder("n2"))
        server.admin.delete("nodes", "n3")
        taken = await other.book.take(volume("moves"), holder("n2"))
        assert "node n3 does not exist any more" in taken.reason
        await other.book.release(volume("moves"), holder("n2"))
        with pytest.raises(StatusError) as error:
            server.admin.get(RECORDS, "moves")
        assert error.value.code == 404


async def test_the_own_identity_of_a_node_may_not(server: Server, kubeconfig: Path) -> None:
    own = server.node_client("n1")
    for method, path in (
        ("GET", RECORDS.path()),
        ("POST", RECORDS.path()),
        ("DELETE", RECORDS.path("pv-1")),
        ("GET", "/api/v1/nodes/n2"),
    ):
        assert own.send(method, path, {"kind": RECORDS.kind, "metadata": {"name": "pv-1"}}).code == 403


# --- one file ---


class Taker:
    """A process that takes volumes of a file."""

    def __init__(self, path: Path, node: str) -> None:
        command = [sys.executable, "-m", "tests.integration.storage.taker", str(path), node]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self.process.wait(30)


@pytest.fixture
def takers(tmp_path: Path) -> Iterator[list[Taker]]:
    path = tmp_path / "records" / "records.db"
    made = [Taker(path, node) for node in ("n1", "n2")]
    assert [one.answer() for one in made] == ["ready", "ready"]
    yield made
    for one in made:
        if one.process.poll() is None:
            one.close()


@pytest.mark.parametrize("rounds", ROUNDS)
def test_two_processes_of_a_machine_never_both_win(takers: list[Taker], rounds: int) -> None:
    wins = [0, 0]
    for number in range(rounds):
        first = number % 2
        for one in (takers[first], takers[1 - first]):
            one.ask(f"pv-{number}")
        ends = [one.answer() for one in takers]
        assert sorted(ends) == ["lost", "won"], number
        wins[ends.index("won")] += 1
    assert min(wins) > 0, wins


@pytest.mark.parametrize("kills", KILLS)
async def test_an_agent_that_is_killed_loses_and_breaks_nothing(
    takers: list[Taker], tmp_path: Path, kills: int
) -> None:
    """The agent is killed while it takes volumes; what it has entered stays, and the file is whole."""
    path = tmp_path / "records" / "records.db"
    takers[0].close()
    for number in range(kills):
        one = Taker(path, "n1")
        assert one.answer() == "ready"
        one.ask(f"kept-{number}")
        assert one.answer() == "won"
        for extra in range(3):
            one.ask(f"open-{number}-{extra}")
        one.close(kill=True)
        takers[1].ask(f"kept-{number}")
        assert takers[1].answer() == "lost"
        takers[1].ask(f"own-{number}")
        assert takers[1].answer() == "won"
    stores = open_stores(kubeconfig=None, records=path, node="n1", clock=SystemClock())
    for number in range(kills):
        assert (await stores.attachments.get(f"kept-{number}")).value["nodes"] == "n1"
    await stores.close()


# --- a scan; script/bench measures it with 10,000 records, and takes and releases ---


async def test_a_scan_goes_through_all_pages_and_removes_what_a_restart_has_left(tmp_path: Path) -> None:
    path = tmp_path / "records" / "r.db"
    stores = open_stores(kubeconfig=None, records=path, node="n1", clock=SystemClock())
    assert stores.own_nodes is not None
    await stores.own_nodes.announce(storage_records.NODE, storage_records.BOOT)
    storage_records.fill(path, 1_200)
    report = await Scanner(stores).scan()
    assert (report.records, len(report.stale)) == (1_200, 3)
    assert await GarbageLists(stores.stale, SystemClock()).of(storage_records.NODE) == (), (
        "a restart has left nothing to remove"
    )
    with pytest.raises(NotFound):
        await stores.attachments.get("pv-0")
    assert (await stores.attachments.get("pv-1")).name == "pv-1"
    await stores.close()
