"""Writes the agent's log to systemd's journal as entries with fields.

`journalctl POD_NAME=web` then finds the lines of one pod. Each key of a log line becomes a field in capital letters; ``pod``
becomes POD_NAMESPACE and POD_NAME. MESSAGE is the line as text, with its values. Source: systemd,
JOURNAL_NATIVE_PROTOCOL.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

SOCKET: Final = Path("/run/systemd/journal/socket")
SEND_SECONDS: Final = 0.5
"""Longest wait for a journal that reads nothing; then the line is lost."""

_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_NO_NAME: Final = re.compile(r"[^A-Z0-9_]|^[0-9_]+")
_NAME_LENGTH: Final = 64
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_connected(stream: TextIO) -> bool:
    """Return True if systemd has connected `stream` to the journal, by JOURNAL_STREAM (systemd.exec(5))."""
    try:
        stat = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file, or a closed one
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


def entry_of(text: str, event: Mapping[str, Any]) -> bytes:
    """Encode one line of the log. `text`: value of MESSAGE. `event`: keys and values, and ``level``."""
    fields: dict[str, str] = {
        "MESSAGE": text,
        "PRIORITY": str(_PRIORITIES.get(str(event.get("level")), 6)),
        "SYSLOG_IDENTIFIER": "kubeletx",
    }
    for key, value in event.items():
        if key == "pod":
            namespace, _, name = str(value).rpartition("/")
            fields |= {"POD_NAMESPACE": namespace, "POD_NAME": name}
        elif key not in ("event", "level"):
            fields.setdefault(_NO_NAME.sub("", key.upper())[:_NAME_LENGTH], str(value))
    return b"".join(_field(name, value) for name, value in fields.items() if name)


def _field(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)


class JournalLogger:
    """A structlog logger that sends entries. A line that the journal does not take is written to standard error."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = str(path)
        self._stream = sys.stderr

    def msg(self, text: str, event: Mapping[str, Any]) -> None:
        entry = entry_of(text, event)
        try:
            self._send(entry)
        except TimeoutError:  # standard error leads to the same journal, and would block
            pass
        except OSError:
            with contextlib.suppress(OSError):
                self._stream.write(f"{text}\n")

    debug = info = warning = error = critical = msg

    def _send(self, entry: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_SECONDS)
            try:
                sender.sendto(entry, self._path)
            except OSError as error:
                if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                    raise
                self._send_file(sender, entry)

    def _send_file(self, sender: socket.socket, entry: bytes) -> None:
        """Send an entry that is larger than a datagram, as a sealed file in memory."""
        file = os.memfd_create("kubeletx-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(entry)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))
            sender.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(file)
