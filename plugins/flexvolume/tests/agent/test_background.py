"""The attachments of whole agents: on an API server with the rights of the manifests, and on a file of one machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.background import CHECK_SECONDS, FIRST_SECONDS, Attachments
from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.attachments.definitions import (
    CLUSTERS,
    FINALIZER,
    LEASE,
    NAMESPACE,
)
from kubeletx_flexvolume.attachments.record import is_image_record, value_of
from kubeletx_flexvolume.values import HolderStatus

from kubeletx.api import Conflict, InvalidConfig, PermissionDenied, Unavailable
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import let_others_work, until
from plugins.flexvolume.tests.attachments.attachment_model import (
    LocalDouble,
    StorageDouble,
    entry,
    holder,
    volume,
)
from plugins.flexvolume.tests.attachments.cluster_model import (
    LISTS,
    RECORDS,
    STORAGE_CLUSTERS,
    USER,
    add_cluster,
    add_node,
    add_volume,
    close,
    rules_of,
    set_up,
)


class AgentModel:
    """The attachments of one node, with volumes that are only remembered."""

    def __init__(self, name: str, directory: Path, *, boot_id: str = "", **settings: Any) -> None:
        self.name, self.clock = name, FakeClock()
        self.local, self.storage = LocalDouble(), StorageDouble()
        directory.mkdir(exist_ok=True, mode=0o700)
        config = AgentConfig(
            node_name=name,
            boot_id=boot_id or f"{name}-boot",
            state_dir=directory,
            **settings,
        )
        self.made: Attachments = Attachments(
            config,
            backends={"loop": self.storage},
            local=lambda: self.local,
            blocking=asyncio.to_thread,
            clock=self.clock,
            draw=lambda: 0.0,
        )
        self.local.book = self.made.book
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.made.before_serving()
        for name, run in self.made.tasks:
            self._tasks.append(asyncio.create_task(_run(run), name=f"{self.name}: {name}"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await close(self.made)
        assert [one for one in ends if one is not None and not isinstance(one, asyncio.CancelledError)] == []


async def _run(run: Any) -> None:
    await run()


async def live(agent: AgentModel, seconds: float) -> None:
    """Let time pass in steps in which a leader renews its Lease."""
    end = agent.clock.monotonic() + seconds
    while agent.clock.monotonic() < end:
        agent.clock.advance(20)
        for _ in range(10):
            await let_others_work()


@contextlib.asynccontextmanager
async def running(*agents: AgentModel) -> AsyncIterator[None]:
    try:
        for agent in agents:
            await agent.start()
        yield
    finally:
        for agent in agents:
            await agent.stop()


@pytest.fixture
def kubeconfig(api: ApiServerDouble) -> Path:
    path = set_up(api)
    for name in ("n1", "n2"):
        add_node(api.admin, name)
    return path


def names(api: ApiServerDouble, of: Any = RECORDS) -> list[str]:
    """Names of the records of volumes."""
    found = [one["metadata"]["name"] for one in api.admin.list(of)["items"]]
    return [name for name in found if not is_image_record(name)]


async def test_a_volume_moves_to_another_node_after_the_first_is_deleted(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    add_volume(api.admin, "pv-1", claim="data")
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
    other = AgentModel("n2", tmp_path / "n2", storage_kubeconfig=kubeconfig)
    async with running(one, other):
        taken = await one.made.book.take(volume(), holder("n1"))
        await one.made.book.note(volume(), taken, device="/dev/loop0", status=HolderStatus.MOUNTED)
        one.local.mount(volume(), taken)
        with pytest.raises(Conflict, match=r"default/web-0 on node n1.*its node is ready"):
            await other.made.book.take(volume(), holder("n2"))
        api.admin.delete("nodes", "n1")
        moved = await other.made.book.take(volume(), holder("n2"))
        assert "node n1 does not exist any more" in moved.reason
        (event,) = api.admin.list("events", "default")["items"]
        assert (event["reason"], event["involvedObject"]["name"]) == ("AttachmentLockBroken", "data")
        assert names(api, LISTS) == ["n1"]
        one.clock.advance(CHECK_SECONDS)
        await until(lambda: one.local.dropped)
        assert one.local.dropped[0][2] is True
    assert names(api) == ["pv-1"]


async def test_a_returning_node_works_its_list_off_before_it_serves(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    other = AgentModel("n2", tmp_path / "n2", storage_kubeconfig=kubeconfig)
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
    await one.made.before_serving()
    taken = await one.made.book.take(volume(), holder("n1"))
    await one.stop()
    uid = api.admin.get("nodes", "n1")["metadata"]["uid"]
    api.admin.delete("nodes", "n1")
    async with running(other):
        await other.made.book.take(volume(), holder("n2"))
        add_node(api.admin, "n1")
        assert api.admin.get("nodes", "n1")["metadata"]["uid"] != uid
        back = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
        back.local.mount(volume(), taken)
        async with running(back):
            assert [name for name, _, _ in back.local.dropped] == ["pv-1"]
            assert names(api, LISTS) == []


async def test_volumes_are_not_taken_before_the_list_was_read(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    api.stop()
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
    async with running(one):
        with pytest.raises(Unavailable, match="has not been read yet"):
            await one.made.book.take(volume(), holder("n1"))
        api.start()

        async def works() -> None:
            while True:
                one.clock.advance(10)
                with contextlib.suppress(Unavailable):
                    await one.made.book.take(volume(), holder("n1"))
                    return
                await asyncio.sleep(0)

        async with asyncio.timeout(30):
            await works()


async def test_volumes_of_a_storage_cluster_are_not_taken_before_it_is_known_to_live(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    add_cluster(api.admin, "main", finalizers=["example.com/hold"])
    add_cluster(api.admin, "other")
    api.admin.delete(STORAGE_CLUSTERS, "main", "default")
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
    await one.made.before_serving()
    for name in ("main", "other"):
        with pytest.raises(
            Unavailable, match=f"default/{name} of volume pv-1 is being deleted is not known yet"
        ):
            await one.made.book.take(volume(cluster=f"default/{name}"), holder("n1"))
    await one.made.book.take(volume("pv-2"), holder("n1"))
    async with running(one):
        await until(lambda: not one.made.context.refuses(volume(cluster="default/other")))
        assert one.made.context.refuses(volume(cluster="default/main")).endswith("is being deleted")


async def test_the_own_identity_of_a_node_is_refused(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    own = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=api.node_kubeconfig("n1"))
    await own.made.before_serving()
    with pytest.raises(Unavailable, match="has not been read yet"):
        await own.made.book.take(volume(), holder("n1"))
    with pytest.raises(PermissionDenied):
        await own.made.book.release(volume(), holder("n1"))
    await own.stop()
    assert names(api) == []


# --- rights ---


def used_rights(api: ApiServerDouble) -> set[tuple[str, str, str]]:
    """(group, plural, verb) of every request of the storage identity."""
    found = set()
    for one in api.requests.all(user=USER):
        parts = one.path.strip("/").split("/")
        group, tail = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        plural = tail[2] if tail[0] == "namespaces" and len(tail) > 2 else tail[0]
        found.add((group, plural, one.verb))
    return found


def granted_rights() -> set[tuple[str, str, str]]:
    return {
        (group, plural, verb)
        for rule in [*rules_of("ClusterRole"), *rules_of("Role")]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_rights_are_what_the_agents_use_and_no_more(
    api: ApiServerDouble, kubeconfig: Path, tmp_path: Path
) -> None:
    """One agent lives through everything: leads, scans, breaks a lock, cleans up a storage cluster."""
    add_cluster(api.admin, "main")
    add_volume(api.admin, "pv-1", claim="data")
    stale = {
        "apiVersion": RECORDS.api_version,
        "kind": RECORDS.kind,
        "metadata": {"name": "pv-9"},
        "spec": value_of([entry("gone")]),
    }
    of = volume(cluster="default/main")
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig, break_policy="seed")
    async with running(one):
        await until(lambda: api.requests.all(path=f"/leases/{LEASE}", verb="get"))
        api.admin.create(RECORDS, stale)
        await live(one, FIRST_SECONDS)
        await until(lambda: "pv-9" not in names(api))
        await until(lambda: names(api, LISTS) == ["gone"])
        await one.made.book.take(of, holder("n1"))
        await one.made.book.release(of, holder("n1"))
        made = {**stale, "metadata": {"name": "pv-1"}, "spec": value_of([entry("n2")])}
        api.admin.create(RECORDS, made)
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        api.admin.patch("nodes", "n2", {"status": status}, subresource="status")
        with pytest.raises(Conflict, match="cannot be cut off"):
            await one.made.book.take(of, holder("n1"))
        api.admin.delete("nodes", "n2")
        api.admin.create(RECORDS, {**made, "metadata": {"name": "pv-2"}})
        taken = await one.made.book.take(of, holder("n1"))
        one.local.mount(of, taken)
        second = await one.made.book.take(volume("pv-2"), holder("n1"))
        await one.made.book.release(volume("pv-2"), second)
        one.clock.advance(60)

        def finalizers() -> list[str]:
            one.clock.advance(1)
            found = api.admin.get(STORAGE_CLUSTERS, "main", "default")
            return found["metadata"].get("finalizers") or []

        await until(lambda: finalizers() == [FINALIZER])
        api.admin.delete(STORAGE_CLUSTERS, "main", "default")

        def is_gone() -> bool:
            one.clock.advance(1)
            return not api.admin.list(STORAGE_CLUSTERS)["items"]

        await until(is_gone)
        gone = AgentModel("gone", tmp_path / "gone", storage_kubeconfig=kubeconfig)
        await gone.made.before_serving()
        await gone.stop()
        assert (names(api, LISTS), names(api)) == (["n2"], [])
    assert used_rights(api) == granted_rights()
    refused = [(one.method, one.path) for one in api.requests.all(user=USER) if one.code == 403]
    assert refused == []
    assert CLUSTERS.plural in {plural for _, plural, _ in granted_rights()}
    assert api.admin.get("leases", LEASE, NAMESPACE)["spec"].get("holderIdentity", "") == ""


# --- one machine ---


async def test_two_agents_of_a_machine_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "records" / "records.db"
    one = AgentModel("n1", tmp_path / "n1", records=path)
    other = AgentModel("n2", tmp_path / "n2", records=path)
    async with running(one, other):
        taken = await one.made.book.take(volume(), holder("n1"))
        with pytest.raises(Conflict, match="on node n1"):
            await other.made.book.take(volume(), holder("n2"))
        assert one.made.context.refuses(volume(cluster="a/b")) == ""
        await one.made.book.release(volume(), taken)
        await other.made.book.take(volume(), holder("n2"))


async def test_an_entry_from_before_a_restart_of_the_machine_goes_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "records" / "records.db"
    one = AgentModel("n1", tmp_path / "n1", records=path)
    async with running(one):
        await one.made.book.take(volume(), holder("n1"))
    later = AgentModel("n1", tmp_path / "n1", boot_id="later", records=path)
    async with running(later):
        async with asyncio.timeout(30):
            while await later.made.book.holds(volume(), holder("n1")):
                later.clock.advance(1)
                await asyncio.sleep(0)


async def test_exactly_one_store_is_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="none is given"):
        AgentModel("n1", tmp_path / "n1")


async def test_a_file_that_others_can_change_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    one = AgentModel("n1", tmp_path / "n1", records=tmp_path / "open" / "records.db")
    with pytest.raises(InvalidConfig, match="other users can write"):
        await one.made.before_serving()
    await one.stop()
