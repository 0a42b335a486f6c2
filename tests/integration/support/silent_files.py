"""`SilentFileSystem`: a FUSE file system whose server does not answer, to keep processes from being frozen.

A process that reads a file of it waits. A signal or a freezer brings it to uninterruptible sleep (state D).
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from pathlib import Path

_REQUEST_BYTES = 1 << 17
_MNT_DETACH = 2


class SilentFileSystem:
    """The file system, as a context manager, with one process that waits for it: `reader`, a ``cat``."""

    def __init__(self, mount: Path) -> None:
        """`mount`: directory, made if it is missing."""
        self._mount = mount
        self._server: int | None = None

    def __enter__(self) -> SilentFileSystem:
        self._mount.mkdir(exist_ok=True)
        server = self._server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.mount(b"silent", os.fsencode(self._mount), b"fuse", 0, options)
        assert done == 0, os.strerror(ctypes.get_errno())
        _answer_init(server)
        self.reader = subprocess.Popen(["cat", str(self._mount / "file")], stderr=subprocess.DEVNULL)
        os.read(server, _REQUEST_BYTES)  # its first request
        return self

    def end(self) -> None:
        """End the server: the kernel then fails all requests, and `reader` ends unless it is frozen."""
        if self._server is not None:
            os.close(self._server)
            self._server = None

    def __exit__(self, *exc_info: object) -> None:
        self.end()
        try:
            self.reader.wait(20)
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(self._mount), _MNT_DETACH)


def _answer_init(server: int) -> None:
    """Answer FUSE_INIT, without which the kernel sends no request. Source: linux/fuse.h."""
    unique = struct.unpack_from("<IIQ", os.read(server, _REQUEST_BYTES))[2]
    body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 4096, 1, 1, 0, 0)
    os.write(server, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
