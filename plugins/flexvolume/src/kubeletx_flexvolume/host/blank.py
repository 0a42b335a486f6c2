"""Decides that a block device is blank, and may be formatted. `..blank` has the rules."""

from __future__ import annotations

import os
import stat

from kubeletx.api import Unavailable
from kubeletx.api.names import Event

from ..blank import BLKID, BLKID_NOTHING, WIPEFS, Signature, parse_signature, problem_with_wipefs
from ..blank_probe import problem_of as _read_problem
from ..blank_probe import words_of
from .programs import Programs, failed
from .threads import Threads


async def look_at_device(programs: Programs, device: str, *, until: float, key: str = "") -> Signature:
    """Return what blkid finds on a device. Raises Unavailable if its answer is unclear."""
    result = await programs.run(*BLKID, device, until=until, key=key)
    text = result.stdout.decode("utf-8", "replace")
    if result.exit_code == BLKID_NOTHING and not text.strip():
        return Signature()
    content = parse_signature(text)
    if result.exit_code != 0 or content.is_empty:
        raise failed("blkid", f"tell what is on {device}", result)
    return content


async def check_blank(
    programs: Programs,
    threads: Threads,
    device: str,
    *,
    until: float,
    key: str = "",
    is_interrupted: bool = False,
) -> None:
    """Raise Unavailable, with the reason, unless the second look finds the device blank.

    `is_interrupted`: a format of this device was begun by this node and did not end, so that it need not be zero.
    """
    result = await programs.run(*WIPEFS, device, until=until, key=key)
    if result.exit_code != 0:
        raise failed("wipefs", f"look for signatures on {device}", result)
    if problem := problem_with_wipefs(0, result.stdout.decode("utf-8", "replace")):
        raise _not_blank(device, problem)
    try:
        problem = await threads.run_until(until, _read_problem, device, is_interrupted)
    except OSError as error:
        raise _not_blank(device, words_of(error)) from error
    if problem:
        raise _not_blank(device, problem)


def is_block_device(path: str) -> bool:
    """Return True if a path is a block device, or a link to one. Blocks."""
    try:
        return path.startswith("/") and stat.S_ISBLK(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False


def device_size(path: str) -> int:
    """Return the size of a block device in bytes. Blocks. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _not_blank(device: str, why: str) -> Unavailable:
    return Unavailable(
        f"device {device} is not formatted, because {why}; if nothing on it is needed, erase it (blkdiscard, or wipefs -a "
        "and zeros over its first and last MiB)",
        reason=Event.FAILED_MOUNT,
    )
