"""Proof that nothing on a block device is needed or used: it can be written, no one has it, its ends are zero.

The file runs as a program of its own, since a read of a dead device can hang in the kernel: it uses only modules that are
written in C. It prints the problem, and exits with 1 if there is one.
"""

from __future__ import annotations

import errno
import fcntl
import posix
import sys

CHUNK_BYTES = 1024 * 1024
INTERRUPTED = "interrupted"
"""Second argument for a device that this node has begun to format, so that its bytes do not count."""
_BLKROGET = 0x125E
_TYPE_MASK, _BLOCK = 0o170000, 0o060000


def problem_of(path: str, *, is_interrupted: bool) -> str:
    """Return why the device is not blank; empty if it is. Raises OSError."""
    # fails while it is mounted, or another driver of the kernel has it
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_EXCL | posix.O_CLOEXEC)
    try:
        if posix.fstat(descriptor).st_mode & _TYPE_MASK != _BLOCK:
            return "it is not a block device"
        if any(fcntl.ioctl(descriptor, _BLKROGET, bytes(4))):
            return "it is read-only"
        size = posix.lseek(descriptor, 0, 2)
        if size < CHUNK_BYTES:
            return f"it has only {size} bytes"
        content = data_at(descriptor, size)
        return "" if is_interrupted else content
    finally:
        posix.close(descriptor)


def words_of(error: OSError) -> str:
    """Return the problem for an error of `problem_of`."""
    return "it is in use" if error.errno == errno.EBUSY else f"it cannot be read: {error.strerror}"


def data_at(descriptor: int, size: int) -> str:
    """Return which byte of the first and the last MiB is not zero; empty: none. Raises OSError."""
    for offset in (0, max(0, size - CHUNK_BYTES)):
        data = bytearray()
        wanted = min(CHUNK_BYTES, size - offset)
        while len(data) < wanted:
            part = posix.pread(descriptor, wanted - len(data), offset + len(data))
            if not part:
                raise OSError(errno.EIO, "it ends early")
            data += part
        if data.count(0) != wanted:
            first = next(index for index, byte in enumerate(data) if byte)
            return f"it contains data that no program recognises: byte {offset + first} is not zero"
    return ""


if __name__ == "__main__":
    try:
        text = problem_of(sys.argv[1], is_interrupted=sys.argv[2:] == [INTERRUPTED])
    except OSError as error:
        text = words_of(error)
    posix.write(1, text.encode())
    posix._exit(1 if text else 0)
