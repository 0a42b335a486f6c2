"""Termination messages (kubelet ST9): what a container says about its own end.

The container writes to a file of ours that is mounted into it; its last 4096 bytes count. With policy
FallbackToLogsOnError an empty file of a failed container is replaced by the end of its log: at most 80
lines and 2048 bytes. What a whole pod may say is limited where its status is built. Reading blocks.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from .log_format import parse_line
from .log_tail import tail_offset

MAX_MESSAGE_BYTES: Final = 4096
MAX_LOG_BYTES: Final = 2048
MAX_LOG_LINES: Final = 80
FALLBACK_TO_LOGS: Final = "FallbackToLogsOnError"


def read_message(file: Path, *, policy: str | None, failed: bool, log_file: Path | None) -> str:
    """The message of one ended attempt; empty if it left none.

    `file`: see `kubeletx.volumes.layout.termination_message_path`. `failed`: its exit code was not 0.
    `log_file`: its log, if there is one. What cannot be read is said in the message itself.
    """
    try:
        message = _read_end(file, MAX_MESSAGE_BYTES)
    except FileNotFoundError:
        message = b""
    except OSError as err:
        return f"Error on reading termination message from file: {err.strerror}"
    if message or policy != FALLBACK_TO_LOGS or not failed or log_file is None:
        return message.decode("utf-8", "replace")
    try:
        return _end_of_log(log_file)
    except FileNotFoundError:
        return ""
    except OSError as err:
        return f"Error on reading termination message from logs: {err.strerror}"


def _read_end(file: Path, size: int) -> bytes:
    """The last bytes of a file that a container writes to; anything but a regular file is refused."""
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as opened:
        found = os.fstat(fd)
        if not os.path.isfile(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, "not a regular file")
        opened.seek(max(0, found.st_size - size))
        return opened.read(size)


def _end_of_log(file: Path) -> str:
    with open(file, "rb") as opened:
        opened.seek(tail_offset(opened, MAX_LOG_LINES))
        records = [record for line in opened if (record := parse_line(line)) is not None]
    text = b"".join(record.text if record.partial else record.text + b"\n" for record in records)
    return text[-MAX_LOG_BYTES:].decode("utf-8", "replace")
