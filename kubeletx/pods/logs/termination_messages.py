"""Termination messages of containers (ST9 in docs/kubelet-parity.md).

A container writes its message to a file that the agent mounts into it; the last 4096 bytes of the file are the message.
With policy FallbackToLogsOnError, if a failed container's file is empty, the end of its log is the message: at most 80
lines and 2048 bytes. The limit for a whole pod is applied where its status is built. Reading blocks.

Only the ends of both files are read, since the container decides how large they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubeletx.volumes.files.held import hold_directory

from .format import parse_line

MAX_MESSAGE_BYTES: Final = 4096
MAX_LOG_BYTES: Final = 2048
MAX_LOG_LINES: Final = 80
_LOG_WINDOW_BYTES: Final = 256 * 1024
"""Bytes read from the log's end: enough for 2048 bytes of text even if each line has only one byte."""
_MESSAGE_DEPTH: Final = 3
"""Number of directories above the message file to open without following links: ``<uid>/containers/<name>``."""
_LOG_DEPTH: Final = 2
FALLBACK_TO_LOGS: Final = "FallbackToLogsOnError"


def read_message(file: Path, *, policy: str | None, failed: bool, log_file: Path | None) -> str:
    """Return the termination message of one ended run of a container; empty if it left none.

    `file`: the message file (`kubeletx.volumes.layout.termination_message_path`). `policy`: terminationMessagePolicy.
    `failed`: the exit code was not 0. `log_file`: the log of the run; None if it has none. If a file cannot be read,
    the returned text says so.
    """
    try:
        message = _read_end(file, MAX_MESSAGE_BYTES, depth=_MESSAGE_DEPTH)
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


def _read_end(file: Path, size: int, *, depth: int) -> bytes:
    """Return the last `size` bytes of a file that a container writes. Raises OSError if it is not a regular file.

    `depth`: see `hold_directory`.
    """
    with (
        hold_directory(file.parent, depth=depth) as directory,
        os.fdopen(directory.open(file.name), "rb") as opened,
    ):
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - size))
        return opened.read(size)


def _end_of_log(file: Path) -> str:
    data = _read_end(file, _LOG_WINDOW_BYTES + 1, depth=_LOG_DEPTH)
    cut, newline = b"", b""
    if len(data) > _LOG_WINDOW_BYTES:  # the text of a line whose beginning was not read
        cut, newline, data = data.partition(b"\n")
    records = [record for line in data.split(b"\n") if (record := parse_line(line)) is not None]
    text = b"".join(record.text if record.partial else record.text + b"\n" for record in records)
    text = (cut[-MAX_LOG_BYTES:] + newline + text)[-MAX_LOG_BYTES:]
    return _last_lines(text, MAX_LOG_LINES).decode("utf-8", "replace")


def _last_lines(text: bytes, count: int) -> bytes:
    start = len(text) - text.endswith(b"\n")
    for _ in range(count):
        start = text.rfind(b"\n", 0, max(0, start))
    return text[start + 1 :]
