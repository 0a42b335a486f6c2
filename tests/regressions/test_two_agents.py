"""Two agents of one node name: the younger one stops reporting and says so; a Lease's owner is the Node as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from kubeletx.agent.backend.about import node_name_health
from kubeletx.api.names import AGENT_IDENTITY
from kubeletx.apiserver.node.claim import (
    Identity,
    LeaseVerdict,
    Reporting,
    first_verdict,
    identity_in,
    must_stop,
)
from kubeletx.apiserver.node.lease import NodeLease
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.types.lease import Lease, LeaseSpec, micro_time
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.server.views import PartHealth
from kubeletx.testing import FakeClock, FakeEventSink
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.apiserver.faults import Rule
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections

NAME = "twin"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLD = Identity(agent="a", boot="boot-a", machine="m-a", pid=1, since=micro_time(NOW - timedelta(days=1)))
NEW = Identity(agent="b", boot="boot-b", machine="m-b", pid=2, since=micro_time(NOW))


# --- the rules ---


def lease_of(identity: Identity | None, age_seconds: float = 5.0) -> Lease:
    notes = {AGENT_IDENTITY: identity.text()} if identity is not None else {}
    renewed = micro_time(NOW - timedelta(seconds=age_seconds))
    return Lease(
        metadata=ObjectMeta(name=NAME, annotations=notes),
        spec=LeaseSpec(holder_identity=NAME, lease_duration_seconds=40, renew_time=renewed),
    )


@pytest.mark.parametrize(
    ("lease", "node_boot", "is_process", "verdict"),
    [
        (lease_of(OLD), "", True, LeaseVerdict.DOUBT),
        (lease_of(OLD, age_seconds=41), "", True, LeaseVerdict.OURS),
        (lease_of(NEW), "", True, LeaseVerdict.OURS),
        (lease_of(replace(NEW, boot="before the reboot")), "", True, LeaseVerdict.OURS),
        (lease_of(replace(NEW, boot="other", machine="a clone's")), "", True, LeaseVerdict.DOUBT),
        (lease_of(replace(NEW, agent="the agent before, on this machine")), "", False, LeaseVerdict.OURS),
        (lease_of(replace(NEW, agent="an agent beside, on this machine")), "", True, LeaseVerdict.DOUBT),
        (lease_of(None), "", True, LeaseVerdict.OURS),
        (lease_of(None), "boot-b", True, LeaseVerdict.OURS),
        (lease_of(None), "boot of a kubelet elsewhere", True, LeaseVerdict.DOUBT),
        (Lease(), "", True, LeaseVerdict.OURS),
    ],
)
def test_a_lease_that_is_found_at_the_start_is_ours_or_in_doubt(
    lease: Lease, node_boot: str, is_process: bool, verdict: LeaseVerdict
) -> None:
    found = first_verdict(NEW, lease, node_boot=node_boot, now=NOW, is_process=lambda _: is_process)
    assert found is verdict


def test_of_two_that_live_exactly_one_must_stop() -> None:
    same_age = replace(NEW, since=OLD.since)
    for one, other in ((OLD, NEW), (OLD, same_age), (NEW, replace(NEW, boot="a clone's"))):
        assert must_stop(one, other) != must_stop(other, one)
    assert must_stop(NEW, OLD)
    assert not must_stop(NEW, NEW)
    assert not must_stop(NEW, None)


def test_an_annotation_that_is_not_an_identity_is_none() -> None:
    for text in ("", "x", "{}", '{"agent": 1}', "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")):
        assert identity_in(Lease(metadata=ObjectMeta(annotations={AGENT_IDENTITY: text}))) is None


async def test_what_reports_runs_only_while_it_may() -> None:
    reporting, runs = Reporting(), []

    async def run() -> None:
        runs.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            runs.append("ended")

    task = asyncio.create_task(reporting.while_allowed(run))
    await settle()
    assert runs == []
    reporting.allow()
    await settle()
    reporting.refuse("another")
    await settle()
    assert runs == ["began", "ended"]
    reporting.allow()
    await settle()
    assert runs == ["began", "ended", "began"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert runs[-1] == "ended"


async def test_a_report_that_fails_while_it_is_ended_is_not_lost() -> None:
    reporting = Reporting()

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("went wrong at the end")

    reporting.allow()
    before = asyncio.all_tasks()
    task = asyncio.create_task(reporting.while_allowed(run), name="test")
    await settle()
    assert {one.get_name() for one in asyncio.all_tasks() - before} == {
        "test",
        "reporting",
        "reporting-refusal",
    }
    reporting.refuse("another")
    with pytest.raises(RuntimeError, match="went wrong at the end"):
        await task
    assert asyncio.all_tasks() == before


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# --- against the double ---


class Twins:
    """Agents of one name against one API server, on a clock that a test moves."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api = api
        self.clock = FakeClock()
        self.events = FakeEventSink()
        self.clients: list[KubeClient] = []
        self.tasks: dict[NodeLease, asyncio.Task[None]] = {}

    def agent(self, identity: Identity | None) -> NodeLease:
        """An agent that starts now."""
        client = KubeClient(load_kubeconfig(self.api.node_kubeconfig(NAME)), clock=self.clock)
        self.clients.append(client)
        own = replace(identity, since=micro_time(self.clock.now())) if identity is not None else None
        lease = NodeLease(client, NAME, clock=self.clock, identity=own, events=self.events)
        lease.owned_by(self.node_uid())
        self.tasks[lease] = asyncio.create_task(lease.run())
        return lease

    async def stop(self, lease: NodeLease) -> None:
        """The agent's process ends."""
        task = self.tasks.pop(lease)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def node_uid(self) -> str:
        return str(self.api.admin.get("nodes", NAME)["metadata"]["uid"])

    def lease(self) -> dict[str, Any]:
        items = self.api.admin.list("leases", "kube-node-lease")["items"]
        return dict(items[0]) if items else {}

    def holder(self) -> str:
        """The agent that renewed last."""
        notes = self.lease().get("metadata", {}).get("annotations", {})
        known = identity_in(Lease(metadata=ObjectMeta(annotations=notes)))
        return known.agent if known is not None else ""

    async def until(self, holds: Callable[[], object], *, within: float = 300.0) -> float:
        """Let time pass until it holds; returns how long that took, in the agents' seconds."""
        began = self.clock.monotonic()
        async with asyncio.timeout(60):
            while not holds():
                assert self.clock.monotonic() - began < within, "it did not happen in time"
                self.clock.advance(0.5)
                await asyncio.sleep(0.02)
        return self.clock.monotonic() - began

    async def pass_time(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        await self.until(lambda: self.clock.monotonic() >= end, within=seconds + 1)


@pytest.fixture
async def twins(tmp_path: Path) -> AsyncIterator[Twins]:
    with ApiServerDouble(tmp_path / "api") as api:
        api.admin.create("nodes", {"metadata": {"name": NAME}})
        made = Twins(api)
        try:
            yield made
        finally:
            for lease in list(made.tasks):
                await made.stop(lease)
            for client in made.clients:
                await client.close()
            await until(lambda: not connections(api))


async def test_a_second_agent_of_the_name_reports_nothing_and_says_so(twins: Twins) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    await twins.pass_time(5)
    with capture_logs() as lines:
        second = twins.agent(NEW)
        await twins.until(lambda: second.reporting.problem)
    assert first.reporting.is_allowed
    assert not second.reporting.is_allowed
    assert "agent a (boot boot-a" in second.reporting.problem
    assert "--hostname-override" in second.reporting.problem
    assert [one["log_level"] for one in lines if one["event"].startswith("Stopped reporting")] == ["error"]
    assert twins.events.reasons() == ["DuplicateNode"]
    await twins.pass_time(60)
    assert twins.holder() == "a"
    assert len(twins.events.recorded) == 1, "said once"


@pytest.mark.parametrize("code", [401, 403])
async def test_only_an_agent_without_the_right_to_read_leases_does_not_wait_for_an_answer(
    twins: Twins, code: int
) -> None:
    twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    twins.api.faults.add(Rule(methods=("GET",), code=code, times=1, path="/leases/"))
    second = twins.agent(NEW)
    await twins.until(lambda: second.reporting.problem or second.reporting.is_allowed)
    assert second.reporting.is_allowed == (code == 403)


async def test_the_second_one_goes_on_when_the_first_is_gone(twins: Twins) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    second = twins.agent(NEW)
    await twins.until(lambda: second.reporting.problem)
    await twins.stop(first)
    seconds = await twins.until(lambda: second.reporting.is_allowed)
    assert seconds >= 30
    assert second.reporting.problem == ""
    await twins.until(lambda: twins.holder() == "b")


async def test_an_agent_that_comes_back_from_an_outage_is_the_older_one(twins: Twins) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    task = twins.tasks[first]
    await twins.stop(first)  # cut off; its process lives
    second = twins.agent(NEW)
    await twins.until(lambda: twins.holder() == "b")
    assert task.cancelled()
    twins.tasks[first] = asyncio.create_task(first.run())
    await twins.until(lambda: second.reporting.problem)
    assert first.reporting.is_allowed
    await twins.until(lambda: twins.holder() == "a")


@pytest.mark.parametrize("boot", ["boot-a", "after a reboot"])
async def test_a_restarted_agent_and_a_rebooted_machine_go_on_at_once_with_their_claim(
    twins: Twins, boot: str
) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    since = identity_in(Lease(metadata=ObjectMeta(annotations=twins.lease()["metadata"]["annotations"])))
    assert since is not None
    await twins.stop(first)
    await twins.pass_time(5)
    again = twins.agent(replace(OLD, boot=boot, pid=3))
    async with asyncio.timeout(60):
        # no time passes for the agents
        await until(lambda: again.reporting.is_allowed)
    await twins.until(lambda: boot in twins.lease()["metadata"]["annotations"][AGENT_IDENTITY])
    now = identity_in(Lease(metadata=ObjectMeta(annotations=twins.lease()["metadata"]["annotations"])))
    assert now is not None
    assert now.since == since.since


async def test_a_kubelet_that_comes_later_is_named_and_does_not_stop_the_agent(twins: Twins) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    with capture_logs() as lines:
        lease = twins.lease()
        lease["spec"]["renewTime"] = "2031-01-01T00:00:00.000000Z"
        twins.api.admin.replace("leases", lease, fieldManager="kubelet")
        await twins.until(lambda: twins.events.recorded)
    assert first.reporting.is_allowed
    assert [one["manager"] for one in lines if one["event"].startswith("Corrected a foreign write")] == [
        "kubelet"
    ]
    assert (
        "is the older" in twins.events.recorded[0].message
        or "had the name first" in twins.events.recorded[0].message
    )


async def test_a_note_that_someone_writes_on_the_lease_makes_no_rival(twins: Twins) -> None:
    first = twins.agent(OLD)
    await twins.until(lambda: twins.holder() == "a")
    renewed = twins.lease()["spec"]["renewTime"]
    lease = twins.lease()
    lease["metadata"]["annotations"]["example.com/note"] = "x"
    twins.api.admin.replace("leases", lease)
    await twins.until(lambda: twins.lease()["spec"]["renewTime"] > renewed)
    assert first.reporting.is_allowed
    assert twins.events.recorded == []
    assert twins.lease()["metadata"]["annotations"]["example.com/note"] == "x"


async def test_the_owner_of_a_lease_is_the_node_as_it_is_now(twins: Twins) -> None:
    lease = twins.agent(OLD)
    await twins.until(twins.lease)
    before = twins.node_uid()
    assert [one["uid"] for one in twins.lease()["metadata"]["ownerReferences"]] == [before]
    twins.api.admin.delete("nodes", NAME)
    lease.owned_by("")
    twins.api.admin.create("nodes", {"metadata": {"name": NAME}})
    after = twins.node_uid()
    assert after != before
    lease.owned_by(after)
    await twins.until(lambda: [one["uid"] for one in twins.lease()["metadata"]["ownerReferences"]] == [after])


def test_healthz_has_a_part_for_the_nodes_name_in_a_cluster() -> None:
    reporting = Reporting()
    reporting.refuse("another agent reports as node twin")
    assert node_name_health(reporting) == (
        PartHealth(name="node-name", ok=False, message="another agent reports as node twin"),
    )
    reporting.allow()
    assert [one.ok for one in node_name_health(reporting)] == [True]
