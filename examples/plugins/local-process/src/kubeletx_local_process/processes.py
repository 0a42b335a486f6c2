"""One process that outlives its parent: started under a small supervisor, found again by its directory.

The supervisor is a shell in a session of its own. It writes its process id and start time, starts the program
as leader of another session, and writes the exit code when that ends. So the agent may come and go, stopping
signals reach the program's whole process group but never the supervisor, and a process id that the kernel
reused meanwhile is detected by its start time.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

# `ln` fails if the file is there: of several supervisors one goes on, and none after its end.
SUPERVISOR = r"""
cd "$1" && cut -d' ' -f1,22 /proc/$$/stat > $$ && ln $$ supervisor && rm $$ || exit 0
log=$2 workdir=$3; shift 3; mkdir -p "${log%/*}"
setsid sh -c 'echo $$ > pid.tmp; mv pid.tmp pid; echo; exec >>"$0" 2>&1; cd "$1" && shift && exec "$@"' \
    "$log" "$workdir" "$@"
code=$?
kill -s KILL -- "-$(cat pid)"
echo $code > exit.tmp && mv exit.tmp exit
"""
# Ends when the supervisor's child says that its process id is written, or when the supervisor gave up.
LAUNCHER = 'setsid --fork sh -c "$0" supervisor "$@" </dev/null 2>/dev/null | read -r started'
KILLED = 137


class Life(NamedTuple):
    """Nanoseconds since the epoch, 0 and None for what has not happened."""

    started_at_ns: int = 0
    finished_at_ns: int = 0
    exit_code: int | None = None


class Usage(NamedTuple):
    """Processor time in nanoseconds since the start, and memory in bytes."""

    cpu_ns: int
    memory_bytes: int


class Child:
    """The process whose files are in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def start(self, *command: str, environment: Mapping[str, str], directory: str, log: str) -> None:
        """Start it, once: later calls do nothing. `log`: where its output is appended."""
        arguments = (LAUNCHER, SUPERVISOR, str(self.path), log, directory, *command)
        launcher = await asyncio.create_subprocess_exec("sh", "-c", *arguments, env=dict(environment))
        await launcher.wait()

    def supervisor(self) -> int | None:
        """Process id of the supervisor while it lives, and so perhaps the program."""
        with suppress(FileNotFoundError, ProcessLookupError):
            pid, start = (self.path / "supervisor").read_text().split()
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
            if fields[19] == start and fields[0] != "Z" and not (self.path / "exit").exists():
                return int(pid)
        return None

    def life(self) -> Life:
        """Exit code 137 if the supervisor had no time to write it, as after a power cut."""
        begun, end = self.path / "supervisor", self.path / "exit"
        if not begun.exists():
            return Life()
        started_at_ns = begun.stat().st_mtime_ns
        if self.supervisor() is not None:
            return Life(started_at_ns)
        if not end.exists():
            return Life(started_at_ns, started_at_ns, KILLED)
        return Life(started_at_ns, end.stat().st_mtime_ns, int(end.read_text()))

    def usage(self) -> Usage | None:
        """Sum over the processes of the program's session; None if it does not run."""
        try:
            session = (self.path / "pid").read_text().strip()
        except FileNotFoundError:
            return None
        cpu_ticks = memory_pages = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = (process / "stat").read_bytes().rpartition(b")")[2].decode().split()
                if fields[3] == session:
                    cpu_ticks += sum(map(int, fields[11:15]))
                    memory_pages += int(fields[21])
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return Usage(cpu_ticks * tick_ns, memory_pages * os.sysconf("SC_PAGE_SIZE"))

    async def send(self, signal: Signals) -> None:
        """Signal the program and its children, if they run."""
        with suppress(FileNotFoundError, ProcessLookupError):
            if self.supervisor() is not None:
                os.killpg(int((self.path / "pid").read_text()), signal)

    async def wait(self) -> None:
        """Until it has ended, and its supervisor too."""
        with suppress(ProcessLookupError):
            if (pid := self.supervisor()) is not None:
                descriptor, ended = os.pidfd_open(pid), asyncio.Event()
                asyncio.get_running_loop().add_reader(descriptor, ended.set)
                try:
                    await ended.wait()
                finally:
                    asyncio.get_running_loop().remove_reader(descriptor)
                    os.close(descriptor)
