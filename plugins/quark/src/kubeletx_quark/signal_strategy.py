"""`SignalStrategy`: freezes and wakes containers by signals to their first process, as Quark understands them.

Quark's shim takes SIGSTOP (19) as hibernate and SIGCONT (18) as wake. A signal has no answer. So the CPU time of the
container's cgroup is read afterwards: if it still grows, or a process could run, the signal was not honoured; the wake
signal is sent, and the call fails. A program that ignores the signal and sleeps is not recognised; it costs no CPU time either.

With runc, SIGSTOP stops the first process only, not its children. The kernel does not show that such a container rests:
the ids are stored in a directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kubeletx.api import Conflict, Host, TimedOut, UnitId
from kubeletx.cri import ContainerdTasks, TaskState
from kubeletx.linux.processes import read_stat

from .cgroups import PROC, container_cgroup, find_hierarchy

WINDOW_SECONDS = 0.1
"""Time between two readings of the CPU time."""
WINDOWS = 10
"""Number of readings after which a container that still uses CPU time counts as not frozen."""
QUIET_SHARE = 0.01
"""Share of one CPU below which a container counts as frozen; Quark itself may need some."""


class SignalStrategy:
    """Strategy ``signal``. Implements `Strategy`."""

    def __init__(
        self,
        tasks: ContainerdTasks,
        host: Host,
        freeze_signal: int,
        thaw_signal: int,
        proc: Path = PROC,
    ) -> None:
        """`tasks`: of the containerd that runs the containers. `freeze_signal`, `thaw_signal`: numbers."""
        self._tasks = tasks
        self._host = host
        self._proc = proc
        self._freeze_signal, self._thaw_signal = freeze_signal, thaw_signal
        self._frozen = Records(host.state_directory / "frozen")

    def open(self, running: Iterable[UnitId]) -> None:
        """Read the stored ids, and drop ids that are not in `running`, the ids of the running containers."""
        self._frozen.load()
        alive = set(running)
        for unit_id in self._frozen:
            if unit_id not in alive:
                self._frozen.remove(unit_id)

    async def freeze(self, unit_id: UnitId) -> None:
        """Send the freeze signal, and wait until the container uses no CPU time."""
        task = await self._tasks.get(unit_id)
        if task.state is not TaskState.RUNNING:
            raise Conflict(f"container {unit_id} is {task.state.value}, not running")
        hierarchy = find_hierarchy("cpuacct", self._proc)
        directory = container_cgroup(hierarchy, task.pid, unit_id, self._proc)
        self._frozen.add(
            unit_id
        )  # before the signal: an agent that is killed now sends the wake signal later
        try:
            await self._tasks.kill(unit_id, self._freeze_signal)
            await self._wait_quiet(unit_id, directory, hierarchy.version)
        except BaseException:
            await self._tasks.kill(unit_id, self._thaw_signal)
            self._frozen.remove(unit_id)
            raise

    async def thaw(self, unit_id: UnitId) -> None:
        """Send the wake signal to a container that was frozen by signal; others may end by such a signal."""
        if unit_id in self._frozen:
            await self._tasks.kill(unit_id, self._thaw_signal)
            self._frozen.remove(unit_id)

    async def is_frozen(self, unit_id: UnitId) -> bool:
        """Return True if the last signal that was sent to the container is the freeze signal."""
        return unit_id in self._frozen

    def forget(self, unit_id: UnitId) -> None:
        self._frozen.remove(unit_id)

    async def _wait_quiet(self, unit_id: UnitId, directory: Path, version: int) -> None:
        clock = self._host.clock
        for _ in range(WINDOWS):
            began, before = clock.monotonic(), _cpu_seconds(directory, version)
            await clock.sleep(WINDOW_SECONDS)
            used, passed = _cpu_seconds(directory, version) - before, clock.monotonic() - began
            with suppress(TimedOut):  # the CPU time decides; CRI shows an end later
                if (await self._tasks.get(unit_id)).state is TaskState.STOPPED:
                    raise Conflict(
                        f"container {unit_id} has ended; signal {self._freeze_signal} is the likely cause"
                    )
            if used < QUIET_SHARE * passed and not _is_runnable(directory, self._proc):
                return
        raise Conflict(
            f"container {unit_id} does not honour signal {self._freeze_signal}: its processes still use CPU time; use "
            "strategy freezer or pause, or a runtime handler that honours it"
        )


def _cpu_seconds(directory: Path, version: int) -> float:
    """Return the CPU time that the cgroup has used; 0 if it is gone."""
    try:
        if version == 1:
            return int((directory / "cpuacct.usage").read_text()) / 1e9
        text = (directory / "cpu.stat").read_text()
    except OSError:
        return 0.0
    fields = dict(line.split() for line in text.strip().split("\n"))
    return int(fields["usage_usec"]) / 1e6


def _is_runnable(directory: Path, proc: Path) -> bool:
    """Return True if a process of the cgroup would use CPU time: on a busy machine it may get none for a while."""
    try:
        pids = (directory / "cgroup.procs").read_text().split()
    except OSError:
        return False
    stats = (read_stat(pid, proc) for pid in pids)
    return any(stat is not None and stat.state == "R" for stat in stats)


class Records:
    """Set of container ids, as empty files in a directory of the runtime's state. It survives restarts of the agent.

    It keeps what the kernel does not show: that the memory of a frozen container was reclaimed, or that a container was
    frozen by a signal. A file is not flushed to the disk, since no container outlives the machine.
    """

    def __init__(self, directory: Path) -> None:
        """`directory`: made when the first id is added."""
        self._directory = directory
        self._ids: set[UnitId] = set()

    def load(self) -> None:
        """Read the ids that earlier agent processes have stored."""
        self._ids = {UnitId(path.name) for path in self._directory.glob("*")}  # none if it was not made yet

    def __contains__(self, unit_id: UnitId) -> bool:
        return unit_id in self._ids

    def __iter__(self) -> Iterator[UnitId]:
        return iter(tuple(self._ids))

    def add(self, unit_id: UnitId) -> None:
        self._directory.mkdir(exist_ok=True)
        (self._directory / unit_id).touch()
        self._ids.add(unit_id)

    def remove(self, unit_id: UnitId) -> None:
        """Remove an id and its file; does nothing if it is not in the set."""
        if unit_id in self._ids:
            (self._directory / unit_id).unlink(missing_ok=True)
            self._ids.discard(unit_id)
