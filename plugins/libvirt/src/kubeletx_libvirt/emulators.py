"""CPU time and memory of the machines on this node, read from their emulators' processes.

libvirt would query each emulator, one after the other: 15 ms for each machine on a busy node. The kernel has
CPU time and resident memory in one small file. An emulator is identified by the machine's UUID in its command
line. Its process id is cached with its start time, so that a reused process id is detected. Blocking.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from kubeletx.linux.processes import PROC, TICKS_PER_SECOND, read_stat

_UUID_OPTION = b"\0-uuid\0"
_TICK_NS = 1_000_000_000 // TICKS_PER_SECOND


class EmulatorUsage(NamedTuple):
    """CPU time of all threads of one emulator since its start, and the emulator's resident memory."""

    cpu_ns: int
    resident_bytes: int


class Emulators:
    """Finds the emulators of machines among the node's processes, and reads their CPU time and memory."""

    def __init__(self, proc: Path = PROC) -> None:
        """`proc`: where procfs is mounted. Does no I/O."""
        self._proc = proc
        self._known: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def usage(self, uuids: Collection[str]) -> dict[str, EmulatorUsage]:
        """Return CPU time and memory of each machine's emulator by the machine's UUID.

        Machines whose emulator is not found on this node are left out.
        """
        with self._lock:
            usages = self._known_usage(uuids)
            if missing := set(uuids) - usages.keys():
                self._search(missing)
                usages |= self._known_usage(missing)
            return usages

    def _known_usage(self, uuids: Collection[str]) -> dict[str, EmulatorUsage]:
        return {uuid: usage for uuid in uuids if (usage := self._usage_of(uuid)) is not None}

    def _usage_of(self, uuid: str) -> EmulatorUsage | None:
        pid, started = self._known.get(uuid, (0, 0))
        stat = read_stat(pid, self._proc) if pid else None
        if stat is None or stat.started_ticks != started:
            self._known.pop(uuid, None)
            return None
        return EmulatorUsage(cpu_ns=stat.cpu_ticks * _TICK_NS, resident_bytes=stat.resident_bytes)

    def _search(self, uuids: set[str]) -> None:
        for entry in os.scandir(self._proc):
            if not entry.name.isdecimal():
                continue
            uuid = self._uuid_of(entry.name)
            if uuid in uuids and (stat := read_stat(entry.name, self._proc)) is not None:
                self._known[uuid] = int(entry.name), stat.started_ticks

    def _uuid_of(self, pid: str) -> str:
        with contextlib.suppress(OSError):
            line = (self._proc / pid / "cmdline").read_bytes()
            _, option, rest = line.partition(_UUID_OPTION)
            if option:
                return rest.partition(b"\0")[0].decode(errors="replace")
        return ""
