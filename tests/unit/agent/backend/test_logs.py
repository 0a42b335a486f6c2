"""Logs of containers and machines: what has not started has none and says so; what disappears ends the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import NotFound
from kubeletx.kube.types.core import Pod, ResourceRequirements, VirtualMachine
from kubeletx.pods import log_path
from kubeletx.server.backend import AdminBackend
from kubeletx.server.views import LogOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")
WAITING = 'container "main" in pod "web" is waiting to start: ContainerCreating'
NO_PREVIOUS = 'previous terminated container "main" in pod "web" not found'


def log_file(agent: AgentModel, pod: Pod, attempt: int = 0) -> Path:
    (directory,) = (agent.root / "logs").glob(f"*_{pod.uid}")
    return directory / log_path("main", attempt)


async def read(backend: AdminBackend, **options: bool) -> bytes:
    lines = await backend.pods.open_logs(WEB, LogOptions(**options))
    return b"".join([piece async for piece in lines])


@pytest.mark.parametrize("follow", [False, True])
async def test_a_container_that_was_created_and_not_started_waits_to_start(
    agent: AgentModel, *, follow: bool
) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].script("start_unit", hang=True)
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: agent.runtimes["one"].counts["start_unit"])
        worker = agent.parts.manager.find("default", "web")
        assert worker is not None
        worker.look_again()
        await agent.clock.run_for(3)
        with pytest.raises(NotFound) as caught:
            await read(backend, follow=follow)
        assert str(caught.value) == WAITING
        with pytest.raises(NotFound) as caught:
            await read(backend, follow=follow, previous=True)
        assert str(caught.value) == NO_PREVIOUS


@pytest.mark.parametrize("follow", [False, True])
async def test_a_container_that_was_not_created_waits_to_start(agent: AgentModel, *, follow: bool) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].script("create_unit", hang=True)
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: agent.runtimes["one"].counts["create_unit"])
        with pytest.raises(NotFound) as caught:
            await read(backend, follow=follow)
        assert str(caught.value) == WAITING
        with pytest.raises(NotFound) as caught:
            await read(backend, follow=follow, previous=True)
        assert str(caught.value) == NO_PREVIOUS


async def test_a_container_that_waits_for_its_restart_shows_the_log_of_its_last_run(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        runtime = agent.runtimes["one"]
        unit_id = runtime.backend.find_unit("main")
        runtime.backend.write_log(unit_id, b"first\n")
        stuck = runtime.script("start_unit", hang=True)
        runtime.backend.exit_unit(unit_id, 1)
        await agent.until(lambda: stuck.hits)
        worker = agent.parts.manager.find("default", "web")
        assert worker is not None
        worker.look_again()
        await agent.clock.run_for(3)
        assert len(runtime.backend.units) == 2
        assert await read(backend) == b"first\n"
        assert await agent.done(read(backend, follow=True)) == b"first\n"
        assert await read(backend, previous=True) == b"first\n"
        stuck.stop()


@pytest.mark.parametrize("follow", [False, True])
async def test_an_ended_container_without_a_log_file_is_an_error_at_once(
    agent: AgentModel, *, follow: bool
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod(restart_policy="Never"))
        runtime = agent.runtimes["one"]
        runtime.backend.exit_unit(runtime.backend.find_unit("main"), 0)
        await agent.until(lambda: agent.phase("web") == "Succeeded")
        with pytest.raises(NotFound, match="there is no log at"):
            await backend.pods.open_logs(WEB, LogOptions(follow=follow))


async def test_a_log_that_disappears_while_it_is_followed_ends_with_the_container(agent: AgentModel) -> None:
    async with agent.running() as backend:
        pod = await agent.apply(a_pod(restart_policy="Never"))
        runtime = agent.runtimes["one"]
        unit_id = runtime.backend.find_unit("main")
        runtime.backend.write_log(unit_id, b"one\n")
        lines = await backend.pods.open_logs(WEB, LogOptions(follow=True))
        assert await agent.done(anext(lines)) == b"one\n"
        log_file(agent, pod).unlink()
        runtime.backend.exit_unit(unit_id, 0)
        assert await agent.done(anext(lines, b"end")) == b"end"


async def test_a_machine_that_was_created_and_not_started_waits_to_start(tmp_path: Path) -> None:
    agent = AgentModel(tmp_path, ("kvm",))
    machine = VirtualMachine(
        name="main", image="busybox", resources=ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"})
    )
    async with agent.running() as backend:
        agent.runtimes["kvm"].script("start_unit", hang=True)
        await backend.pods.apply_pod(a_pod(containers=(), virtual_machine=machine))
        await agent.until(lambda: agent.runtimes["kvm"].counts["start_unit"])
        worker = agent.parts.manager.find("default", "web")
        assert worker is not None
        worker.look_again()
        await agent.clock.run_for(3)
        for follow in (False, True):
            with pytest.raises(NotFound, match="is waiting to start"):
                await read(backend, follow=follow)
        with pytest.raises(NotFound, match="previous terminated container"):
            await read(backend, previous=True)
