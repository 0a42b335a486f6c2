"""Errors of calls to FlexVolume drivers, and the translation of system errors.

A driver that fails does its part of the protocol, so that these errors are Unavailable or TimedOut, never Internal: the
agent tries again, and other drivers are not affected.
"""

from __future__ import annotations

import errno

from kubeletx.api import InvalidPod, KubeletxError, PermissionDenied, TimedOut, Unavailable
from kubeletx.api.names import Event


class DriverFailed(Unavailable):
    """The driver answered that the call failed; it has ended."""


class DriverMissing(Unavailable):
    """The driver's executable cannot be started, so that the call did nothing."""


class CallUnclear(TimedOut):
    """The call ended without a usable answer: it may have done its work, a part of it, or nothing."""


class BadAnswer(CallUnclear):
    """The driver has exited by itself, without a usable answer."""


def volume_error(cls: type[KubeletxError], volume: str, problem: str) -> KubeletxError:
    """Return an error about one volume. `problem`: what was found and what to do."""
    return cls(f"volume {volume}: {problem}", reason=Event.FAILED_MOUNT)


def invalid_volume(volume: str, field: str, problem: str, fix: str) -> InvalidPod:
    """Return the error for a volume that its author must correct. `field`: within the volume's source."""
    return InvalidPod(
        obj=f"volume {volume}", field=field, problem=problem, fix=fix, reason=Event.FAILED_MOUNT
    )


def start_error(driver: str, path: str, error: OSError) -> KubeletxError:
    """Translate the error of starting a driver's executable."""
    fix = {
        errno.ENOENT: "install it again; a script also needs the interpreter of its first line, which must not end with "
        "CR LF",
        errno.E2BIG: "make the options of the volume smaller",
        errno.EACCES: "make it executable (mode 0755), on a file system without noexec",
        errno.ENOEXEC: "a script needs a first line such as #!/bin/sh",
        errno.ETXTBSY: "it is being written; it is tried again",
    }.get(error.errno or 0, "it is tried again")
    return DriverMissing(
        f"driver {driver}: {path} cannot be started: {error.strerror}; {fix}", reason=Event.FAILED_MOUNT
    )


def file_error(what: str, error: OSError) -> KubeletxError:
    """Translate an error of the plugin's own files and of directories for volumes.

    `what`: text that begins the message.
    """
    text = f"{what}: {error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    cls = PermissionDenied if error.errno in {errno.EPERM, errno.EACCES} else Unavailable
    return cls(text, reason=Event.FAILED_MOUNT)
