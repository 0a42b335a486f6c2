"""`restored_process`: undoes what the import of a plugin in the agent's process changed in that process."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Unavailable

from .identity import PluginIdentity

log = structlog.get_logger(__name__)

HIGH_DESCRIPTOR: Final = 400
"""Copies of descriptors have this number or a higher one. The usual soft limit, which systemd sets too, is 1024."""
_DESCRIPTORS: Final = Path("/proc/self/fd")


@contextlib.contextmanager
def restored_process(plugin: PluginIdentity) -> Iterator[None]:
    """Context of an import, after which the process is as before.

    This covers signals, umask, working directory, environment, open descriptors, and the configuration of log lines. A
    change is undone and logged with the plugin. Raises Unavailable, which names the plugin, if it cannot be undone.
    Descriptors that the import opened stay open.
    """
    state = _State()
    try:
        yield
    finally:
        changed = state.restore()
        left = state.restore() if changed else []
        state.close()
    if left:
        raise Unavailable(
            f"{plugin}: its import changed the agent's process ({', '.join(left)}), and that cannot be undone; repair "
            "the plugin, or run it in a process of its own (without isolation=none)"
        )
    if changed:
        log.warning(
            "Undid what the import of a plugin changed", plugin=str(plugin), changed=", ".join(changed)
        )


class _State:
    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        opened = {number: os.fstat(number) for number in _open_descriptors()}
        self._files = _FilesInFlight(
            number for number, status in opened.items() if stat.S_ISREG(status.st_mode)
        )
        self._descriptors = {
            number: (
                status,
                os.get_inheritable(number),
                None if stat.S_ISREG(status.st_mode) else _copy(number),
            )
            for number, status in opened.items()
        }
        # O_PATH: works without read permission for the directory.
        low = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._directory = _copy(low)
        os.close(low)
        self._umask = _umask()
        self._environment = dict(os.environb)
        self._signals = (
            {number: signal.getsignal(number) for number in signal.valid_signals()} if is_main else {}
        )
        # Blocking nothing is the way to read the mask: there is no call that only returns it.
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._wakeup = _wakeup_descriptor() if is_main else None
        self._hooks = (sys.excepthook, threading.excepthook, sys.stdout, sys.stderr)
        self._structlog = structlog.get_config()
        root = logging.getLogger()
        self._logging = (list(root.handlers), root.level, logging.root.manager.disable)

    def restore(self) -> list[str]:
        """Undo every change; return words for what was changed."""
        # Descriptors first: with its pipes and sockets closed, nothing else of the agent works.
        parts = {
            "open descriptors": self._restore_descriptors,
            "working directory": self._restore_directory,
            "umask": self._restore_umask,
            "environment": self._restore_environment,
            "signal handlers": self._restore_signals,
            "configuration of log lines": self._restore_logs,
        }
        return [word for word, restore in parts.items() if restore()]

    def close(self) -> None:
        self._files.close()
        for number in (self._directory, *(copy for _, _, copy in self._descriptors.values())):
            if number is not None:
                with contextlib.suppress(OSError):
                    os.close(number)

    def _restore_descriptors(self) -> bool:
        changed = False
        for number, (before, inheritable, copy) in self._descriptors.items():
            try:
                if os.path.samestat(os.fstat(number), before):
                    continue
            except OSError:  # EBADF: it is closed
                pass
            # An epoll instance has the number and the open file, so this also restores what it waits for.
            with contextlib.suppress(OSError):  # as below: EBADF if the copy is closed too
                if copy is None:
                    self._files.restore(number, inheritable)
                else:
                    os.dup2(copy, number, inheritable=inheritable)
            changed = True
        return changed

    def _restore_directory(self) -> bool:
        try:
            if os.path.samestat(Path.cwd().stat(), os.fstat(self._directory)):
                return False
        except OSError:  # the directory that the plugin changed to is gone
            pass
        with contextlib.suppress(OSError):  # the second look of `restored_process` finds it
            os.fchdir(self._directory)
        return True

    def _restore_umask(self) -> bool:
        return os.umask(self._umask) != self._umask

    def _restore_environment(self) -> bool:
        if dict(os.environb) == self._environment:
            return False
        # Bytes and not text: variables that are not UTF-8 survive.
        os.environb.clear()
        os.environb.update(self._environment)
        return True

    def _restore_signals(self) -> bool:
        changed = signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked) != self._blocked
        for number, handler in self._signals.items():
            if signal.getsignal(number) is not handler:
                changed = True
                # None: a handler that is not from Python, which cannot be set again
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._wakeup is not None and _wakeup_descriptor() != self._wakeup:
            changed = True
            signal.set_wakeup_fd(self._wakeup)
        return changed

    def _restore_logs(self) -> bool:
        now = structlog.get_config()
        root = logging.getLogger()
        hooks = (sys.excepthook, threading.excepthook, sys.stdout, sys.stderr)
        own = (list(root.handlers), root.level, logging.root.manager.disable)
        if now == self._structlog and own == self._logging and hooks == self._hooks:
            return False
        structlog.configure(**self._structlog)
        root.handlers[:], level, disable = self._logging
        root.setLevel(level)
        logging.disable(disable)
        sys.excepthook, threading.excepthook, sys.stdout, sys.stderr = self._hooks
        return True


class _FilesInFlight:
    """Copies of open files, each in a message of a socket.

    They are not descriptors of this process: closing one of those drops all locks that the process has on the file, such
    as SQLite's on the database. Source: fcntl(2), "Record locks"; a file that is in flight is released without that.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader, self._writer = (socket.socket(fileno=_copy(end.fileno())) for end in pair)
        for end in pair:
            end.close()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._left = list(numbers)
        # A full socket, with some 200 files: the others cannot be restored.
        with contextlib.suppress(OSError):
            for number in self._left:
                socket.send_fds(self._writer, [b"."], [number])

    def restore(self, number: int, inheritable: bool) -> None:
        """Open the file again as `number`; once, and in the order of the constructor. Raises OSError if it has no copy."""
        while self._left and self._left.pop(0) != number:
            self._reader.recv(1)  # without its file
        _, (copy,), _, _ = socket.recv_fds(self._reader, 1, 1)
        os.dup2(copy, number, inheritable=inheritable)
        os.close(copy)

    def close(self) -> None:
        for end in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                end.close()


def _open_descriptors() -> list[int]:
    numbers = []
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # the descriptor of this list itself
            os.fstat(int(name))
            numbers.append(int(name))
    return numbers


def _copy(number: int) -> int:
    """Return a copy with a high number, out of the reach of code that closes all low ones."""
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)


def _umask() -> int:
    mask = os.umask(0o077)  # the only way to read it that every kernel has
    os.umask(mask)
    return mask


def _wakeup_descriptor() -> int:
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number
