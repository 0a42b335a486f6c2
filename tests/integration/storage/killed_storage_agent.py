"""A process that kills storage agents at every step of a mount and an unmount, and checks what the next agent does.

    killed_storage_agent.py DIRECTORY BACKEND fresh|kept

Agents are forks of this process, which has imported everything, so that one takes milliseconds. It needs a mount namespace
of its own. It prints the points at which it killed, and what was wrong, as JSON.

fresh: the volume is new, and formatted. kept: the volume has data, which must survive.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kubeletx_flexvolume.agent.background  # the agent's command imports these modules late
import kubeletx_flexvolume.attachments.sqlite
import kubeletx_flexvolume.cleanup.cleaner
from kubeletx_flexvolume.agent import lifecycle
from kubeletx_flexvolume.agent.main import main
from kubeletx_flexvolume.agent.stored import JournalFiles
from kubeletx_flexvolume.attachments.record_book import RecordBook
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.driver import program

from kubeletx.linux.mounts import read_mounts
from kubeletx_testing.waiting import block_until
from tests.integration.storage.storage_agent import entries_of, loop_files, storage_daemons

LATE_MODULES = (kubeletx_flexvolume.attachments, kubeletx_flexvolume.cleanup, lifecycle)
NAME = "pv-1"
SIZE = 16 << 20


class Points:
    """Counts the points of one agent, and kills the process at the one with number `last`; 0: at none."""

    def __init__(self, last: int, file: Path) -> None:
        self._last = last
        self._file = file
        self._number = 0

    def reach(self, name: str) -> None:
        self._number += 1
        with self._file.open("a") as file:
            file.write(f"{name}\n")
        if self._number == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Put points before and after each write of the journal, call of the records and program."""
        for method in ("put", "remove"):
            self._wrap(JournalFiles, method, lambda _, method=method: f"journal {method}")
        for method in ("take", "note", "release"):
            self._wrap(RecordBook, method, lambda _, method=method: f"record {method}")
        self._wrap(Commands, "run", lambda args: f"program {args[0][0].rpartition('/')[2]}")
        start = subprocess.Popen

        def started(command: Sequence[str], **options: Any) -> Any:
            process = start(command, **options)
            self.reach(f"during program {command[0].rpartition('/')[2]}")
            return process

        subprocess.Popen = started  # type: ignore[assignment,misc]

    def _wrap(self, owner: type, method: str, name: Callable[[tuple[Any, ...]], str]) -> None:
        function = getattr(owner, method)

        @functools.wraps(function)
        def plain(one: Any, *args: Any, **options: Any) -> Any:
            self.reach(f"before {name(args)}")
            result = function(one, *args, **options)
            self.reach(f"after {name(args)}")
            return result

        @functools.wraps(function)
        async def awaited(one: Any, *args: Any, **options: Any) -> Any:
            self.reach(f"before {name(args)}")
            result = await function(one, *args, **options)
            self.reach(f"after {name(args)}")
            return result

        setattr(owner, method, awaited if asyncio.iscoroutinefunction(function) else plain)


class KilledNode:
    """A node whose agents are killed."""

    def __init__(self, directory: Path, backend: str, *, is_fresh: bool) -> None:
        self.directory = directory
        self.backend = backend
        self.is_fresh = is_fresh
        self.problems: list[str] = []
        self.root, self.pool, self.state = (directory / one for one in ("kubelet", "pool", "state"))
        for one in (self.root, self.pool):
            one.mkdir()
        self.driver = directory / "plugins" / "kubeletx.io~storage" / "storage"
        self.target = self.root / "pods" / "uid" / "volumes" / "kubeletx.io~storage" / NAME
        self.image = self.pool / NAME
        self.records = directory / "records.db"
        self.points_file = directory / "points"
        self.pid = 0
        self._data = ""

    # --- the agent and its driver ---

    def start(self, last: int = 0) -> None:
        """Start an agent that is killed at its point `last`, and wait until it serves."""
        self.points_file.write_text("")
        self.pid = os.fork()
        if not self.pid:
            self._serve(Points(last, self.points_file))
        block_until(lambda: program.main([str(self.driver), "init"])[1] == 0)

    def end(self) -> None:
        """Wait for the end of the agent, which is asked to end if it has not been killed."""
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)

    def has_ended(self) -> bool:
        """Return True if the agent was killed."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def mount(self) -> str:
        """Call ``mount``; return the message of a failure, or an empty text."""
        self.target.mkdir(mode=0o750, parents=True, exist_ok=True)
        options = {
            "backend": self.backend,
            "size": str(SIZE),
            "kubernetes.io/pvOrVolumeName": NAME,
            "kubernetes.io/pod.name": "pod",
            "kubernetes.io/pod.namespace": "default",
            "kubernetes.io/pod.uid": "uid",
        }
        return self._call("mount", str(self.target), json.dumps(options))

    def unmount(self) -> str:
        """Call ``unmount``."""
        return self._call("unmount", str(self.target))

    # --- what is there ---

    def mounts(self) -> list[str]:
        return [one.target for one in read_mounts() if str(self.root) in one.target]

    def left(self) -> list[str]:
        """Return all that a node without volumes must not have."""
        devices = [device for device, file in loop_files() if file.startswith(str(self.directory))]
        files = [str(one) for one in (self.state / "volumes").iterdir()]
        files += [str(one) for one in (self.state / "fuse").glob("*")]
        files += [str(one) for one in self.pool.iterdir() if one != self.image]
        return [*self.mounts(), *devices, *files, *map(str, storage_daemons(self.state)), *self.entries()]

    def entries(self) -> list[str]:
        return [str(one) for one in entries_of(self.records)]

    def is_confirmed(self) -> bool:
        """Return True if the journal has a completed mount, which stays until it is unmounted."""
        try:
            return '"isMounted":true' in (self.state / "volumes" / f"{NAME}.json").read_text()
        except FileNotFoundError:
            return False

    # --- one round ---

    def round(self, last: int) -> bool:
        """Kill an agent at its point `last`, and check the next one. Return False if there is no such point."""
        self._prepare()
        self.start(last)
        phase = self._use_until_killed()
        points = self.points_file.read_text().split("\n")[:-1]
        if not phase:
            self.end()
            return False
        os.waitpid(self.pid, 0)
        where = f"killed {points[-1]} (point {last}, {phase})"
        self.start()
        try:
            self._check_next(where, phase, waits=last % 2 == 0)
        except AssertionError as error:
            self.problems.append(f"{where}: {error}: {self.left()}")
        self.end()
        return True

    def _prepare(self) -> None:
        """Make the volume new, or put data into it."""
        if self.is_fresh and self.image.exists():
            (shutil.rmtree if self.image.is_dir() else os.unlink)(self.image)
            self._data = ""
        if not self.is_fresh and not self.image.exists():
            self.start()
            assert not self.mount()
            self._write("first")
            assert not self.unmount()
            block_until(lambda: not self.left())
            self.end()

    def _use_until_killed(self) -> str:
        """Mount, write and unmount; return in which call the agent was killed."""
        if self.mount():
            return "mount"
        self._write(f"before the end of agent {self.pid}")
        if self.unmount():
            return "unmount"
        block_until(lambda: self.has_ended() or not self.left())
        return "after unmount" if self.has_ended() else ""

    def _check_next(self, where: str, phase: str, *, waits: bool) -> None:
        if phase != "mount":
            self._expect("unmounted again", self.unmount())
            self._becomes_clean()
        elif waits:  # the kubelet may never call again; what was not completed goes by itself
            block_until(lambda: self.is_confirmed() or not self.left())
        self._expect("mounted again", self.mount())
        if self.mounts().count(str(self.target)) != 1 or len(self.mounts()) != 2:
            self.problems.append(f"{where}: mounts are {self.mounts()}")
        if len(self.entries()) != 1:
            self.problems.append(f"{where}: entries are {self.entries()}")
        if self._read() != self._data:
            self.problems.append(f"{where}: data is {self._read()!r} and not {self._data!r}")
        self._write(f"after {where}")
        for _ in range(2):
            self._expect("unmounted", self.unmount())
        self._becomes_clean()

    def _becomes_clean(self) -> None:
        block_until(lambda: not self.left())

    def _expect(self, what: str, message: str) -> None:
        assert not message, f"not {what}: {message}"

    def _write(self, text: str) -> None:
        self._data = text
        with (self.target / "file").open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> str:
        path = self.target / "file"
        return path.read_text() if path.exists() else ""

    def _call(self, *arguments: str) -> str:
        text, code = program.main([str(self.driver), *arguments])
        return "" if code == 0 else str(json.loads(text)["message"])

    def _serve(self, points: Points) -> None:
        """Be the agent; never returns."""
        log = os.open(self.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        points.install()
        options = {
            "--state-dir": self.state,
            "--volume-plugin-dir": self.directory / "plugins",
            "--kubelet-root-dir": self.root,
            "--pool": f"default={self.pool}",
            "--records": self.records,
            "--node-name": "n1",
        }
        words = [str(word) for pair in options.items() for word in pair]
        try:
            main(["agent", "--no-known-plugin-dirs", *words], standalone_mode=False)
        finally:
            os._exit(0)


def run(directory: Path, backend: str, *, is_fresh: bool) -> dict[str, list[str]]:
    """Kill at every point, and return the points and the problems."""
    node = KilledNode(directory, backend, is_fresh=is_fresh)
    last = 1
    while node.round(last) and len(node.problems) < 3:
        last += 1
    return {"points": node.points_file.read_text().split("\n")[:-1], "problems": node.problems}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2], is_fresh=sys.argv[3] == "fresh")))
