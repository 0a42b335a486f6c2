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

PROC = Path("/proc")
_UUID_OPTION = b"\0-uuid\0"
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Positions in /proc/PID/stat after the command's name; see proc(5).
_UTIME, _STIME, _STARTED, _RESIDENT = 11, 12, 19, 21


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
            found = self._known_usage(uuids)
            if missing := set(uuids) - found.keys():
                self._search(missing)
                found |= self._known_usage(missing)
            return found

    def _known_usage(self, uuids: Collection[str]) -> dict[str, EmulatorUsage]:
        return {uuid: usage for uuid in uuids if (usage := self._usage_of(uuid)) is not None}

    def _usage_of(self, uuid: str) -> EmulatorUsage | None:
        pid, started = self._known.get(uuid, (0, 0))
        fields = self._fields(pid) if pid else ()
        if not fields or int(fields[_STARTED]) != started:
            self._known.pop(uuid, None)
            return None
        return EmulatorUsage(
            cpu_ns=(int(fields[_UTIME]) + int(fields[_STIME])) * _TICK_NS,
            resident_bytes=int(fields[_RESIDENT]) * _PAGE_BYTES,
        )

    def _search(self, uuids: set[str]) -> None:
        for entry in os.scandir(self._proc):
            if not entry.name.isdecimal():
                continue
            uuid = self._uuid_of(entry.name)
            if uuid in uuids and (fields := self._fields(int(entry.name))):
                self._known[uuid] = int(entry.name), int(fields[_STARTED])

    def _uuid_of(self, pid: str) -> str:
        with contextlib.suppress(OSError):
            line = (self._proc / pid / "cmdline").read_bytes()
            _, option, rest = line.partition(_UUID_OPTION)
            if option:
                return rest.partition(b"\0")[0].decode(errors="replace")
        return ""

    def _fields(self, pid: int) -> list[bytes]:
        with contextlib.suppress(OSError):
            fields = (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            return fields if len(fields) > _RESIDENT else []
        return []
