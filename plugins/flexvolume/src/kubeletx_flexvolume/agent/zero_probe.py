"""Program that reads the first and the last MiB of a device, and exits with 0 only if all of it is zero.

The agent runs it as a program of its own, since a read of a dead device can hang in the kernel. Exit status: 0: all
bytes are zero; 1: there is data; 2: a read failed or was short.
"""

from __future__ import annotations

import posix
import sys

CHUNK_BYTES = 1024 * 1024


def probe(path: str) -> tuple[int, str]:
    """Return the exit status for the device or file at `path`, and a line that describes the result."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            return _look(descriptor)
        finally:
            posix.close(descriptor)
    except OSError as error:
        return 2, f"cannot read the device: {error.strerror}"


def _look(descriptor: int) -> tuple[int, str]:
    size = posix.lseek(descriptor, 0, 2)
    if size < 1:
        return 2, "the device has no size"
    for offset in dict.fromkeys((0, max(0, size - CHUNK_BYTES))):
        found = _data_in(descriptor, offset, min(CHUNK_BYTES, size - offset))
        if found is not None:
            return found
    return 0, "all bytes are zero"


def _data_in(descriptor: int, offset: int, wanted: int) -> tuple[int, str] | None:
    data = bytearray()
    while len(data) < wanted:
        part = posix.pread(descriptor, wanted - len(data), offset + len(data))
        if not part:
            return 2, f"the device ends at byte {offset + len(data)}, which is before its size"
        data += part
    if data.count(0) == wanted:
        return None
    first = next(index for index, one in enumerate(data) if one)
    return 1, f"byte {offset + first} is not zero"


if __name__ == "__main__":
    code, text = probe(sys.argv[1])
    posix.write(1, text.encode())
    posix._exit(code)
