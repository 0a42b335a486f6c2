"""One process that outlives its parent: started under a small supervisor, found again by its directory.

The supervisor is a shell in a session of its own. It writes its process id and start time, starts the program
as leader of another session, and writes the exit code when that ends. So the agent may come and go, stopping
signals reach the program's whole process group but never the supervisor, and a process id that the kernel
gave to somebody else meanwhile is told by its start time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SUPERVISOR = r"""
cd "$1" && mkdir started 2>/dev/null || exit 0
log=$2 workdir=$3; shift 3
echo "$$ $(cut -d' ' -f22 /proc/$$/stat)" > supervisor.tmp && mv supervisor.tmp supervisor
setsid sh -c 'echo $$ > pid.tmp; mv pid.tmp pid; echo; exec >>"$0" 2>&1; cd "$1" && shift && exec "$@"' \
    "$log" "$workdir" "$@"
code=$?
kill -s KILL -- "-$(cat pid)" 2>/dev/null
echo $code > exit.tmp && mv exit.tmp exit
"""
LAUNCHER = 'setsid --fork sh -c "$0" supervisor "$@" | read -r started'
"""Ends when the supervisor's child says that its process id is written, or when the supervisor gave up."""
KILLED = 137


class Child:
    """The process whose files are in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def start(
        self, *, command: Sequence[str], environment: Mapping[str, str], directory: str, log: Path | None
    ) -> None:
        """Start it, once: later calls find the directory ``started`` and do nothing."""
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        arguments = (str(self.path), str(log or "/dev/null"), directory, *command)
        launcher = await asyncio.create_subprocess_exec(
            *("sh", "-c", LAUNCHER, SUPERVISOR, *arguments),
            env={"PATH": os.defpath, "HOME": "/", **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await launcher.wait()

    @property
    def is_running(self) -> bool:
        """Whether the supervisor, and so perhaps the program, is alive."""
        return not (self.path / "exit").exists() and self._supervisor() is not None

    @property
    def exit_code(self) -> int:
        """As the supervisor wrote it; 137 if it had no time to, as after a power cut."""
        try:
            return int((self.path / "exit").read_text())
        except FileNotFoundError:
            return KILLED

    @property
    def started_at_ns(self) -> int:
        """0: it was never started."""
        return modified_ns(self.path / "supervisor")

    @property
    def finished_at_ns(self) -> int:
        """When the exit code was written."""
        return modified_ns(self.path / "exit") or self.started_at_ns

    async def stop(self, signal_name: str, grace_seconds: float) -> None:
        """Ask with the signal, wait, kill; returns when the exit code is written."""
        if grace_seconds > 0:
            self._signal(signal.Signals[signal_name])
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self.wait()
                    return
        self._signal(signal.SIGKILL)
        await self.wait()

    async def wait(self) -> None:
        """Until the supervisor has ended."""
        supervisor = self._supervisor()
        if supervisor is None:
            return
        try:
            descriptor = os.pidfd_open(supervisor)
        except ProcessLookupError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            if self.is_running:
                os.killpg(int((self.path / "pid").read_text()), number)

    def _supervisor(self) -> int | None:
        try:
            pid, start = (self.path / "supervisor").read_text().split()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, start_time = fields[0], fields[19]
        return int(pid) if start_time == start and state != "Z" else None


def modified_ns(path: Path) -> int:
    """When the file was last written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
