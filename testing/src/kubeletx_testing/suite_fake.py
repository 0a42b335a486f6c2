"""`SuiteFakeRuntime`: a fake runtime whose units do what the shell scripts of the contract suite do.

The suite runs real shell scripts. A fake knows them by the names of the units (`behave_as_scripted`) and of the commands
(`ScriptedCommands`), so that the suite can be run on a runtime in memory. The bad plugins for tests of the suite are
subclasses of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from kubeletx.api import (
    Channel,
    InvalidPod,
    Machine,
    Process,
    SandboxId,
    SandboxSpec,
    Traits,
    UnitId,
    UnitSpec,
)
from kubeletx.testing import Behaviour, FakeBackend, FakeClock, FakeSession
from kubeletx.testing.fake_runtime import FakeRuntime, run_fake_command

NAMESPACES = b"namespaces mnt:[1] net:[2] ipc:[3] uts:[4] pid:[5]\n"


FIXED = {
    "exits": Behaviour(runs_seconds=0, exit_code=7, stdout=b"hello\n", stderr=b"oops\n"),
    "overspends": Behaviour(runs_seconds=0, exit_code=137),
    "succeeds": Behaviour(runs_seconds=0),
    "stubborn": Behaviour(ignores_stop=True),
    "chatty": Behaviour(stdout=b"tick\n", stop_exit_code=0),
    "forking": Behaviour(stdout=b"tick\n", stop_exit_code=0),
    "slow": Behaviour(stdout=b"ready\n", stop_seconds=1, stop_exit_code=3),
    "asked": Behaviour(stdout=b"ready\n", stop_exit_code=0),
    "spends": Behaviour(stdout=b"spent\n", stop_exit_code=0, cpu_nano_cores=100 * 10**9),
    "holds": Behaviour(stdout=b"held\n", stop_exit_code=0, memory_bytes=66 << 20),
    "namespaces": Behaviour(stdout=NAMESPACES, stop_exit_code=0),
    "variables": Behaviour(runs_seconds=0, stdout=b"PATH=/bin\nHOME=/\nend of variables\n"),
}
"""Behaviour of the units whose scripts depend on no field of the spec, by name."""


def behave_as_scripted(spec: UnitSpec) -> Behaviour:
    """Return the behaviour of a unit of the suite: what its script would do."""
    process = spec.detail if isinstance(spec.detail, Process) else Process()
    match spec.name:
        case "exits-with":
            return Behaviour(runs_seconds=0, exit_code=int(process.command[-1].removeprefix("exit ")))
        case "directory":
            return Behaviour(runs_seconds=0, stdout=f"in {process.working_dir or '/'}\n".encode())
        case "signalled":
            return Behaviour(stdout=b"ready\n", stop_exit_code=5 if process.stop_signal == "SIGUSR1" else 6)
        case "arguments":
            words = (process.working_dir, *process.args, str(len(process.args) - 1))
            return Behaviour(runs_seconds=0, stdout="|".join(words).encode() + b"\n")
        case "environment":
            value = spec.environment[-1].value + "\n"
            for mount in spec.mounts:
                Path(mount.source, "answer").write_text(value)
            return Behaviour(runs_seconds=0, stdout=value.encode())
    return FIXED.get(spec.name, Behaviour(stop_exit_code=0))


class ScriptedCommands:
    """Simulates the suite's commands that write and check a process id, and that print their variables and directory.

    All others are `run_fake_command`. `running`: the units in which a command runs that wrote its process id.
    """

    def __init__(self, backend: FakeBackend) -> None:
        """Create commands of which none runs. `backend`: has the specs of the units."""
        self.running: set[UnitId] = set()
        self._backend = backend

    async def run(self, unit_id: UnitId, command: Sequence[str], session: FakeSession) -> int:
        """Run a command to its end and return its exit code. It is an `ExecHandler`."""
        script = command[-1]
        if script.startswith("echo $$"):
            self.running.add(unit_id)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.discard(unit_id)
        if script.startswith("kill -0"):
            if unit_id in self.running:
                session.send(Channel.STDOUT, b"runs\n")
            return 0
        if script.startswith("cd /proc/self/ns"):
            session.send(Channel.STDOUT, NAMESPACES)
            return 0
        if script.startswith("test -t 0"):
            session.send(Channel.STDOUT, b"terminal\r\n")
            while session.sizes[-1:] != [(100, 30)]:  # noqa: ASYNC110 - the fake session only keeps the sizes
                await asyncio.sleep(0)
            session.send(Channel.STDOUT, b"resized\r\n")
            return 4
        if script.startswith('echo "$PWD'):
            spec = self._backend.unit(unit_id).spec
            process = spec.detail if spec and isinstance(spec.detail, Process) else Process()
            values = [variable.value for variable in spec.environment] if spec else []
            text = f"{process.working_dir or '/'}|{' '.join(values)}\n"
            session.send(Channel.STDOUT, text.encode())
            return 0
        return await run_fake_command(unit_id, command, session)


class SuiteFakeRuntime(FakeRuntime):
    """A `FakeRuntime` that passes the contract suite. A second object over the same backend is a restart."""

    def __init__(
        self,
        backend: FakeBackend | None = None,
        *,
        traits: Traits | None = None,
        without: Iterable[type] = (),
    ) -> None:
        """`backend` None: a new one, whose registry has the image ``busybox``. Others: as in `FakeRuntime`."""
        backend = backend or suite_backend()
        self.commands = ScriptedCommands(backend)
        super().__init__(
            backend=backend,
            traits=traits,
            without=without,
            latency={"list_unit_stats": 0.01},  # so that the fake clock moves and usage grows
            exec_handler=self.commands.run,
        )

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Refuse a detail that the traits do not declare, and without images a process without a command."""
        if isinstance(spec.detail, Machine) and "machine" not in self.declared.details:
            raise InvalidPod(field=f"container {spec.name}", problem="it is a machine", fix="use a container")
        no_command = isinstance(spec.detail, Process) and not (spec.detail.command or spec.detail.args)
        if no_command and not self.declared.images:
            raise InvalidPod(field=f"container {spec.name}", problem="no command", fix="write the command")
        return await super().create_unit(sandbox_id, spec, sandbox)

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Open the log file again; the unit prints one more line."""
        await super().reopen_log(unit_id)
        self.backend.write_log(unit_id, b"tick\n")


def suite_backend() -> FakeBackend:
    """Return a new backend for `SuiteFakeRuntime`."""
    clock = FakeClock(auto_advance=True)
    return FakeBackend(clock=clock, behave=behave_as_scripted, registry={"busybox": 4 << 20})
