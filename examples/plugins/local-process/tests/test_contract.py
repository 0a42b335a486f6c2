"""The contract suite of kubeletx on this plugin, and what only this plugin promises."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from signal import Signals

import pluggy
import pytest
from kubeletx_local_process.processes import Child
from kubeletx_local_process.runtime import ProcessRuntime

from kubeletx.api import ENTRY_POINT_GROUP, EventKind, InvalidPod, Runtime, UnitId, hookspecs
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx.testing.contract import RuntimeContract


class TestProcessRuntime(RuntimeContract):
    @pytest.fixture
    def make_runtime(self, tmp_path: Path) -> Callable[[], Runtime]:
        host = FakeHost(tmp_path)
        return lambda: ProcessRuntime(endpoint("process:///"), None, host)

    @pytest.fixture
    def power_cut(self, tmp_path: Path) -> Iterator[Callable[[UnitId], list[int]]]:
        with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:

            def cut(_unit_id: UnitId) -> list[int]:
                (supervisor,) = tmp_path.glob("live/*/*/supervisor")
                program = supervisor.with_name("pid")
                os.kill(int(supervisor.read_text().split()[0]), Signals.SIGKILL)
                os.killpg(int(program.read_text()), Signals.SIGKILL)
                supervisor.write_text(f"{other.pid} 1")
                program.write_text(str(other.pid))
                return [other.pid]

            yield cut
            other.kill()


async def start(child: Child, *command: str) -> None:
    child.path.mkdir(exist_ok=True)
    await child.start(*command, environment={}, directory="/", log="/dev/null")


async def test_a_process_id_that_belongs_to_someone_else_now_is_not_taken_for_ours(tmp_path: Path) -> None:
    child = Child(tmp_path)
    (tmp_path / "supervisor").write_text(f"{os.getpid()} 1")
    assert child.supervisor() is None
    assert child.life().exit_code == 137


async def test_starting_twice_starts_one_process(tmp_path: Path) -> None:
    child = Child(tmp_path / "unit")
    await start(child, "sleep", "100")
    pid = (child.path / "pid").read_text()
    await start(child, "sleep", "100")
    assert (child.path / "pid").read_text() == pid
    await child.send(Signals.SIGTERM)
    async with asyncio.timeout(5):
        await child.wait()
    assert child.life().exit_code == 143


async def test_grandchildren_end_with_the_program(tmp_path: Path) -> None:
    child = Child(tmp_path / "unit")
    await start(child, "sh", "-c", f"sleep 100 & echo $! > {tmp_path}/grandchild")
    async with asyncio.timeout(5):
        await child.wait()
        grandchild = (tmp_path / "grandchild").read_text().strip()
        while is_alive(grandchild):  # noqa: ASYNC110 - the kernel ends the process a moment after the signal
            await asyncio.sleep(0)


async def test_a_program_that_does_not_exist_exits_with_127(tmp_path: Path) -> None:
    child = Child(tmp_path / "unit")
    await start(child, "/no/such/program")
    async with asyncio.timeout(5):
        await child.wait()
    assert child.life().exit_code == 127


def is_alive(pid: str) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_host_finds_the_plugin_by_its_entry_point() -> None:
    kinds: dict[str, tuple[str, ...]] = {}

    def register(kind: str, factory: object, *, schemes: tuple[str, ...], **_: object) -> None:
        assert factory is ProcessRuntime
        kinds[kind] = schemes

    manager = pluggy.PluginManager("kubeletx")
    manager.add_hookspecs(hookspecs)
    manager.load_setuptools_entrypoints(ENTRY_POINT_GROUP, name="process")
    manager.hook.kubeletx_register_runtimes(register=register)
    assert kinds == {"process": ("process",)}


async def test_the_agent_s_environment_does_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the agent")
    child = Child(tmp_path / "unit")
    child.path.mkdir()
    log = tmp_path / "logs" / "0.log"
    await child.start("sh", "-c", "env", environment={"MINE": "yes"}, directory="/", log=str(log))
    async with asyncio.timeout(5):
        await child.wait()
    text = log.read_text()
    assert "MINE=yes" in text
    assert "SECRET" not in text


async def test_the_end_of_a_process_is_an_event(tmp_path: Path) -> None:
    runtime = ProcessRuntime(endpoint("process:///"), None, FakeHost(tmp_path))
    await runtime.open()
    spec = sandbox_spec()
    sandbox_id = await runtime.create_sandbox(spec)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec(command=("true",)), spec)
    async with asyncio.timeout(5), aclosing(runtime.events()) as events:
        await runtime.start_unit(unit_id)
        assert [(await anext(events)).kind for _ in range(2)] == [EventKind.STARTED, EventKind.STOPPED]
    await runtime.remove_sandbox(sandbox_id)
    await runtime.close()


async def test_a_container_without_a_command_is_refused(tmp_path: Path) -> None:
    runtime = ProcessRuntime(endpoint("process:///"), None, FakeHost(tmp_path))
    await runtime.open()
    sandbox_id = await runtime.create_sandbox(sandbox_spec())
    with pytest.raises(InvalidPod, match="write the program to run"):
        await runtime.create_unit(sandbox_id, unit_spec(), sandbox_spec())
    await runtime.close()
