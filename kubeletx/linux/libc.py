"""System calls that Python's standard library lacks, made through the C library."""

from __future__ import annotations

import ctypes
import os
import signal
from functools import lru_cache
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    # Without types, ctypes passes 32 bits of each integer.
    library.mount.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_ulong,
        ctypes.c_char_p,
    )
    library.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
    library.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return library


def call(name: str, *arguments: Any, path: str | os.PathLike[str] = "") -> int:
    """Call a function of the C library and return its result.

    `path`: named in the error. Raises OSError if the result is negative.
    """
    result: int = getattr(_libc(), name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path) or name)
    return result


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends. Source: prctl(2), PR_SET_PDEATHSIG."""
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
