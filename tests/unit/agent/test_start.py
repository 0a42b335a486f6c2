"""The start: what is in its way is one clear line, and a database that is lost costs history only."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from pathlib import Path
from typing import cast

import pytest
import structlog

from kubeletx.agent.host.readings import HostReadings
from kubeletx.agent.main import run_agent
from kubeletx.agent.parts.part import Part
from kubeletx.api import InvalidConfig, KubeletxError, Unavailable
from kubeletx.node.cgroups.trees import CgroupTrees
from tests.unit.agent.agent_model import AgentModel, a_pod


async def refused(agent: AgentModel) -> KubeletxError:
    """Why the agent does not start."""
    with pytest.raises(KubeletxError) as raised:
        async with agent.running():
            raise AssertionError("it started")
    assert "\n" not in raised.value.message
    return raised.value


def database(agent: AgentModel) -> Path:
    return agent.root / "root" / "kubeletx.db"


def execute(agent: AgentModel, *statements: str) -> None:
    connection = sqlite3.connect(database(agent))
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def test_parts_are_called_between_the_recovery_of_pods_and_their_first_plan(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(a_pod())
    seen: list[tuple[str, bool]] = []

    def look() -> None:
        for worker in agent.parts.manager.workers.values():
            seen.append((worker.desired.ref, worker.plan is None))

    agent.more_parts = (Part(name="looks", recovered=look),)
    async with agent.running():
        assert seen == [("default/web", True)]


# --- the root directory ---


async def test_two_agents_on_one_root_are_one_too_many(agent: AgentModel, tmp_path: Path) -> None:
    async with agent.running():
        error = await refused(agent)
    assert isinstance(error, InvalidConfig)
    assert f"another agent runs on {tmp_path / 'root'}" in error.message


async def test_a_root_that_is_a_file_is_refused(agent: AgentModel) -> None:
    (agent.root / "root").write_text("a file")
    assert "--root-dir: cannot use" in (await refused(agent)).message


async def test_a_log_directory_that_cannot_be_made_is_refused(agent: AgentModel) -> None:
    agent.configure("logs", pod_logs_dir=Path("/dev/null/logs"))
    assert "--pod-logs-dir: cannot use /dev/null/logs" in (await refused(agent)).message


async def test_a_failed_start_leaves_the_root_free(agent: AgentModel) -> None:
    agent.configure("logs", pod_logs_dir=Path("/dev/null/logs"))
    await refused(agent)
    agent.configure("logs", pod_logs_dir=agent.root / "logs")
    async with agent.running():
        pass


async def test_a_first_start_that_fails_leaves_no_root_directory(agent: AgentModel) -> None:
    agent.configure("logs", pod_logs_dir=Path("/dev/null/logs"))
    with pytest.raises(InvalidConfig):
        await run_agent(agent.config, plugins=agent.plugins)
    assert not agent.config.root_dir.exists()
    agent.config.root_dir.mkdir()
    with pytest.raises(InvalidConfig):
        await run_agent(agent.config, plugins=agent.plugins)
    assert agent.config.root_dir.exists()  # the operator made it
    assert not (agent.config.root_dir / "agent-id").exists()


async def test_a_directory_that_cannot_be_made_at_the_first_start_is_one_line(agent: AgentModel) -> None:
    (agent.root / "root").mkdir()
    agent.config.applied_directory.write_text("a file")
    with pytest.raises(Unavailable) as raised:
        await run_agent(agent.config, plugins=agent.plugins)
    assert raised.value.message == f"cannot start: {agent.config.applied_directory}: File exists"


async def test_an_error_of_a_running_agent_s_start_comes_out_of_its_task_groups(agent: AgentModel) -> None:
    (agent.root / "root").mkdir()
    (agent.root / "root" / "kubeletx.sock").mkdir()
    with pytest.raises(InvalidConfig, match="cannot make socket"):
        await run_agent(agent.config, plugins=agent.plugins)


async def test_the_service_manager_is_notified_from_start_to_stop(
    agent: AgentModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "4000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)

        def received(count: int) -> bool:
            with contextlib.suppress(BlockingIOError):
                messages.append(manager.recv(200))
            return len(messages) >= count

        async with agent.running():
            await agent.until(lambda: received(3))
        while not received(4) or not messages[-1].startswith(b"STOPPING=1\n"):
            assert len(messages) < 100
    assert messages[0].startswith(b"READY=1\nSTATUS=node ")
    assert set(messages[1:-1]) == {b"WATCHDOG=1"}


# --- the database ---


async def test_a_newer_database_is_refused_and_kept(agent: AgentModel) -> None:
    async with agent.running():
        pass
    execute(agent, "PRAGMA user_version=99")
    before = database(agent).read_bytes()
    error = await refused(agent)
    assert "schema version: 99 is newer" in error.message
    assert database(agent).read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "directory", "no-column", "no-table"])
async def test_pods_are_found_again_whatever_became_of_the_database(agent: AgentModel, damage: str) -> None:
    async with agent.running():
        made = await agent.apply(a_pod())
        units = list(agent.runtimes["one"].backend.units)
    path = database(agent)
    if damage == "text":
        path.write_text("this is no database" * 100)
    elif damage == "directory":
        path.unlink()
        path.mkdir()
    elif damage == "no-column":
        execute(agent, "ALTER TABLE bindings DROP COLUMN why")
    else:
        execute(agent, "DROP TABLE bindings", "DROP TABLE events", "DROP TABLE pods")
    with structlog.testing.capture_logs() as said:
        async with agent.running() as backend:
            await agent.until(lambda: agent.phase("web") == "Running")
            assert [pod.uid for pod in await backend.pods.list_pods()] == [made.uid]
            assert list(agent.runtimes["one"].backend.units) == units
    aside = [one.name for one in path.parent.iterdir() if ".corrupt-" in one.name]
    assert bool(aside) == (damage != "no-table")
    assert not [line for line in said if line["log_level"] in ("error", "critical")]


async def test_rows_that_make_no_sense_cost_those_rows_only(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(a_pod("a"))
        await agent.apply(a_pod("b"))
    execute(
        agent,
        "UPDATE bindings SET bound_at='yesterday' WHERE name='a'",
        "UPDATE events SET last_at='', first_at='' WHERE ref_name='b'",
        "UPDATE pods SET pod='{' WHERE uid IN (SELECT uid FROM bindings WHERE name='b')",
    )
    with structlog.testing.capture_logs() as said:
        async with agent.running():
            await agent.until(lambda: agent.phase("a") == agent.phase("b") == "Running")
            assert agent.alive() == ["a", "b"]
    tables = [line["table"] for line in said if line["event"] == "Left out invalid rows"]
    assert sorted(tables) == ["bindings", "events", "pods"]


async def test_without_a_database_pods_that_run_go_on_and_new_ones_wait(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(a_pod("old"))
    path = database(agent)
    for one in path.parent.glob("kubeletx.db*"):
        one.unlink()
    path.symlink_to(agent.root / "missing" / "file")
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("old") == "Running")
        await backend.pods.apply_pod(a_pod("new"))
        await agent.until(lambda: agent.phase("new") == "Pending")
        await agent.clock.run_for(5)
        assert agent.alive() == ["old"]
        (agent.root / "missing").mkdir()
        await agent.until(lambda: agent.phase("new") == "Running")


# --- other things in the way ---


async def test_a_failed_cgroup_v1_check_names_the_setting(agent: AgentModel) -> None:
    class Trees:
        version = 1

        def find_closed(self, _path: str) -> None:
            return None

    agent.host = HostReadings(trees=cast("CgroupTrees", Trees()))
    agent.configure("cgroups", fail_cgroup_v1=True)
    assert (
        "failCgroupV1: this machine has cgroup v1; boot it with cgroup v2" in (await refused(agent)).message
    )


async def test_ranges_of_the_configuration_reach_the_runtimes(agent: AgentModel) -> None:
    agent.configure("network", pod_cidr="10.1.2.0/24,fd00::/64")
    async with agent.running():
        await agent.until(lambda: agent.runtimes["one"].pod_cidrs == ("10.1.2.0/24", "fd00::/64"))


async def test_a_bad_endpoint_is_refused_with_its_number(agent: AgentModel) -> None:
    from kubeletx.agent.config.tree import EndpointText

    text = EndpointText(text="vm:machines:fake://x", origin="flag --container-runtime-endpoint")
    agent.configure("runtimes", endpoints=(text,))
    with pytest.raises(InvalidConfig, match="fake"):
        async with agent.running():
            pass


async def test_a_drop_in_that_is_wrong_stops_nothing(agent: AgentModel) -> None:
    directory = agent.root / "root" / "runtimes.d"
    directory.mkdir(parents=True)
    (directory / "bad.yaml").write_text("name: [")
    with structlog.testing.capture_logs() as said:
        async with agent.running() as backend:
            assert len(await backend.runtimes.list_runtimes()) == 2
    assert [line["event"] for line in said if line["log_level"] == "error"] == ["Ignored runtime drop-in"]
