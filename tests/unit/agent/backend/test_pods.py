"""The pod part of the admin backend, on a whole agent with fake runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from kubeletx.agent.backend.pods import TELL_SECONDS, PodBackend
from kubeletx.api import Conflict, NotFound, Session, SupportsExec, TimedOut, Unavailable, Unsupported, names
from kubeletx.api.streams import StreamRequest
from kubeletx.server.views import DeleteOptions, LogOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")


async def test_an_applied_pod_is_listed_with_its_runtime_and_status(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("b", runtime="two"))
        await agent.apply(a_pod("a"))
        pods = await backend.pods.list_pods()
        assert [pod.name for pod in pods] == ["a", "b"]
        assert [pod.metadata.annotations[names.BOUND_RUNTIME] for pod in pods] == ["one", "two"]
        assert {pod.status.phase for pod in pods} == {"Running"}


async def test_the_history_of_a_pod_names_its_actions_in_order(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        history = await backend.pods.pod_history(WEB)
        entries = history.items
        actions = [entry.action for entry in entries]
        assert actions[0] == "bind"
        assert actions.index("create sandbox") < actions.index("start unit main")
        assert all(entry.result and entry.seconds >= 0 for entry in entries)
        start = history.start
        assert start is not None
        assert start.running_at is not None
        assert start.seen_at <= start.running_at
        assert [step.action for step in start.steps if step.action.startswith("start")] == ["start unit main"]


async def test_a_second_apply_changes_nothing_and_a_forbidden_change_is_refused(agent: AgentModel) -> None:
    async with agent.running() as backend:
        assert (await backend.pods.apply_pod(a_pod())).action == "created"
        assert (await backend.pods.apply_pod(a_pod())).action == "unchanged"
        with pytest.raises(Conflict, match="runtimeServiceName"):
            await backend.pods.apply_pod(a_pod(runtime="two"))


async def test_a_watch_begins_with_what_there_is_and_ends_with_deleted(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        watch = backend.pods.watch_pods()
        first = await anext(watch)
        assert (first.type, first.object.name) == ("ADDED", "web")
        await backend.pods.delete_pod(WEB, DeleteOptions())
        types: list[str] = []
        while not types or types[-1] != "DELETED":
            types.append((await agent.done(anext(watch))).type)
        assert set(types) == {"MODIFIED", "DELETED"}
        await watch.aclose()  # type: ignore[attr-defined]


async def test_a_slow_reader_of_a_watch_sees_each_pod_added_once(agent: AgentModel) -> None:
    async with agent.running() as backend:
        for name in ("one", "two"):
            await agent.apply(a_pod(name))
        watch = backend.pods.watch_pods()
        first = await anext(watch)
        await backend.pods.apply_pod(a_pod("two", image="busybox:2"))
        await agent.clock.run_for(10)
        second, third = await anext(watch), await agent.done(anext(watch))
        assert [(one.type, one.object.name) for one in (first, second)] == [
            ("ADDED", "one"),
            ("ADDED", "two"),
        ]
        assert (third.type, third.object.name) == ("MODIFIED", "two")
        await watch.aclose()  # type: ignore[attr-defined]


async def test_a_manifest_s_pod_may_not_be_applied_or_deleted(agent: AgentModel) -> None:
    (agent.root / "manifests" / "web.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
        "spec: {containers: [{name: main, image: busybox}]}\n"
    )
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web-node") == "Running")
        with pytest.raises(Conflict, match="belongs to source 'file'"):
            await backend.pods.apply_pod(a_pod("web-node"))
        target = PodTarget(namespace="default", name="web-node")
        with pytest.raises(Conflict, match="delete the manifest file"):
            await backend.pods.delete_pod(target, DeleteOptions())
        await backend.pods.delete_pod(target, DeleteOptions(grace_seconds=0, force=True))
        await agent.until(lambda: agent.alive() == [])


async def test_delete_ends_every_life_of_a_replaced_pod(agent: AgentModel) -> None:
    async with agent.running() as backend:
        old = await agent.apply(a_pod())
        agent.runtimes["one"].script("stop_unit", hang=True)
        new = (await backend.pods.replace_pod(a_pod(image="busybox:2"), True)).pod
        assert new.uid != old.uid
        assert [pod.uid for pod in await backend.pods.list_pods()] == sorted([old.uid, new.uid])
        waiting = PodTarget(namespace="default", name="web", uid=new.uid)
        with pytest.raises(Conflict, match="waits for the end of an older pod"):
            await backend.pods.open_logs(waiting, LogOptions())
        shown = await backend.pods.delete_pod(WEB, DeleteOptions(grace_seconds=0, force=True))
        assert shown.uid == old.uid
        agent.runtimes["one"].scripts.clear()
        await agent.until(lambda: not agent.parts.manager.workers)
        assert await backend.pods.list_pods() == []
        assert not list((agent.root / "root" / "applied").glob("*.yaml"))


async def test_delete_with_the_uid_of_the_waiting_life_leaves_the_older_one_its_grace(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        old = await agent.apply(a_pod())
        stuck = agent.runtimes["one"].script("stop_unit", hang=True)
        new = (await backend.pods.replace_pod(a_pod(image="busybox:2"), True)).pod
        shown = await backend.pods.delete_pod(
            PodTarget(namespace="default", name="web", uid=new.uid), DeleteOptions()
        )
        assert shown.uid == new.uid
        assert [pod.uid for pod in await backend.pods.list_pods()] == [old.uid]
        stuck.release()
        await agent.until(lambda: not agent.parts.manager.workers)


async def test_delete_with_the_uid_of_the_older_life_keeps_the_new_one(agent: AgentModel) -> None:
    async with agent.running() as backend:
        old = await agent.apply(a_pod())
        new = (await backend.pods.replace_pod(a_pod(), True)).pod
        await backend.pods.delete_pod(
            PodTarget(namespace="default", name="web", uid=old.uid), DeleteOptions()
        )
        await agent.until(lambda: [w.uid for w in agent.parts.manager.workers.values()] == [new.uid])
        await agent.until(lambda: agent.phase("web") == "Running")


async def test_a_pod_that_is_not_there_is_not_found(agent: AgentModel) -> None:
    async with agent.running() as backend:
        with pytest.raises(NotFound, match='pods "web" not found'):
            await backend.pods.delete_pod(WEB, DeleteOptions())
        with pytest.raises(NotFound):
            await backend.pods.open_logs(WEB, LogOptions())
        await agent.apply(a_pod())
        with pytest.raises(NotFound):
            await backend.pods.delete_pod(
                PodTarget(namespace="default", name="web", uid="other"), DeleteOptions()
            )
        with pytest.raises(NotFound, match="containers: main"):
            await backend.pods.open_logs(WEB, LogOptions(container="sidecar"))


async def test_a_command_runs_where_the_runtime_can(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        session = await backend.pods.exec(WEB, "", StreamRequest(command=("echo", "hi")))
        assert isinstance(session, Session)
        assert b"".join([data async for _, data in session.output()]).strip() == b"hi"
        agent.runtimes["one"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("one").state.reachable)
        with pytest.raises(Unavailable, match="runtime one does not answer"):
            await backend.pods.exec(WEB, "", StreamRequest(command=("true",)))


async def test_a_runtime_without_exec_says_so(agent: AgentModel) -> None:
    agent.without = (SupportsExec,)
    async with agent.running() as backend:
        await agent.apply(a_pod())
        with pytest.raises(Unsupported, match="runtime one cannot run commands"):
            await backend.pods.exec(WEB, "", StreamRequest(command=("true",)))


async def test_a_checkpoint_may_take_the_time_that_was_given_for_it(
    agent: AgentModel, tmp_path: Path
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        agent.runtimes["one"].script("checkpoint", hang=True)
        verbs = cast("PodBackend", backend.pods)
        with pytest.raises(TimedOut, match=r"checkpoint did not return within 0\.05 s"):
            await verbs.checkpoint(WEB, "main", tmp_path / "one.tar", 0.05 - TELL_SECONDS)


async def test_a_container_that_does_not_run_takes_no_command(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod(runtime="none"))
        await agent.until(lambda: agent.phase("web") == "Pending")
        with pytest.raises(Conflict, match="container main of pod default/web is not running"):
            await backend.pods.exec(WEB, "", StreamRequest(command=("true",)))
        with pytest.raises(Conflict, match="is not running"):
            await backend.pods.port_forward(WEB, 80)


async def test_pods_go_on_over_a_restart_and_are_the_same(agent: AgentModel) -> None:
    async with agent.running():
        made = await agent.apply(a_pod())
        units = list(agent.runtimes["one"].backend.units)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web") == "Running")
        (pod,) = await backend.pods.list_pods()
        assert pod.uid == made.uid
        assert list(agent.runtimes["one"].backend.units) == units


async def test_a_pod_no_one_claims_after_the_loss_of_the_database_is_orphaned_until_deleted(
    agent: AgentModel,
) -> None:
    manifest = agent.root / "manifests" / "web.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
        "spec: {containers: [{name: main, image: busybox}]}\n"
    )
    async with agent.running():
        await agent.until(lambda: agent.phase("web-node") == "Running")
    manifest.unlink()
    for path in (agent.root / "root").glob("kubeletx.db*"):
        path.write_bytes(b"no database any more")
    async with agent.running() as backend:
        await agent.until(lambda: "file" in agent.parts.manager.synced_sources)
        (pod,) = await backend.pods.list_pods()
        assert pod.metadata.annotations[names.ORPHANED] == "true"
        assert agent.alive() == ["web-node"]
        await backend.pods.delete_pod(PodTarget(namespace="default", name="web-node"), DeleteOptions())
        await agent.until(lambda: agent.alive() == [])
