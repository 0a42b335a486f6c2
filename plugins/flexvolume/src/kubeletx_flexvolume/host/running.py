"""Records of running programs, in files, for the agent process after one that was killed.

A record is written before its program is started. Until it has the process ID, the program is found by the variable `CALL`
of its environment. Numbers of processes are reused, so that the time of the start is compared, too. All functions block,
but not for long: records are not flushed to the disk, since no program survives a reboot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

CALL: Final = "KUBELETX_CALL"
"""Environment variable with the ID of a call."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_ENDED: Final = (b"Z", b"X")


class RunningProcess(msgspec.Struct, frozen=True):
    """Record of a running program. `key`: as in `Processes.run`. `started`: as returned by `start_time`.

    `call`: ID of the call. `pid` 0: it was about to be started.
    """

    key: str
    pid: int
    started: str
    call: str = ""


def write_record(path: Path, record: RunningProcess) -> None:
    """Write the record of a running program. Raises OSError."""
    path.write_bytes(msgspec.json.encode(record))


def read_record(path: Path) -> list[RunningProcess]:
    """Return the programs that run and whose record is in this file, each with its process group; none if it is damaged."""
    found = _decoded(path)
    if found is None:
        return []
    if found.pid:
        is_same = bool(found.started) and start_time(found.pid) == found.started
        return [found] if is_same else []
    groups = set(_groups_of(found.call)) if found.call else set()
    return [RunningProcess(found.key, pid, start_time(pid), found.call) for pid in sorted(groups)]


def is_own(path: Path) -> bool:
    """Return True if the record in this file is of a child of this process."""
    found = _decoded(path)
    fields = _stat(found.pid) if found is not None and found.pid else []
    return bool(fields) and int(fields[1]) == os.getpid()


def start_time(pid: int) -> str:
    """Return when a process was started, as boot ID and ticks since the boot; empty if it has ended."""
    fields = _stat(pid)
    if not fields or fields[0] in _ENDED:
        return ""
    return f"{_BOOT_ID.read_text().strip()} {fields[19].decode()}"


def group_lives(pid: int) -> bool:
    """Return True if a process of the group `pid` has not ended. Zombies have ended, also if their parent ignores them."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    found = (_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return any(fields and int(fields[2]) == pid and fields[0] not in _ENDED for fields in found)


def _groups_of(call: str) -> Iterator[int]:
    """Yield the process groups of all processes that a call has started."""
    wanted = f"{CALL}={call}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError):
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if wanted in variables and (fields := _stat(int(name))):
                yield int(fields[2])


def _decoded(path: Path) -> RunningProcess | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunningProcess)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the state on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
