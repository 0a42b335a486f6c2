"""Network namespaces without a helper program.

A dedicated thread creates or enters a namespace, works there and ends. unshare(2) and setns(2) move only the
calling thread. This thread is never from a pool and always ends, so no other code of the agent runs in a
pod's namespace. The agent is not forked either. A thread cannot be stopped: a caller that is cancelled waits
until the thread has ended, since its effects must not appear after the pod was released.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from kubeletx.api import TimedOut, Unavailable
from kubeletx.linux.libc import call

P = ParamSpec("P")
R = TypeVar("R")

SECONDS: Final = 20.0
_AT_ONCE: Final = 8
_CLONE_NEWNET: Final = 0x40000000
_MS_BIND: Final = 0x1000
_MNT_DETACH: Final = 2


class OwnThreads:
    """Runs each call on a new thread, at most eight at once."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        """`seconds`: deadline of each call."""
        self._seconds = seconds
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self, what: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on a new thread and return its result.

        `what`: description of a failure, for error messages. An OSError of the function is raised as
        Unavailable. A call beyond the deadline raises TimedOut.
        """
        async with self._slots:
            outcome = _start(lambda: function(*args, **kwargs))
            try:
                async with asyncio.timeout(self._seconds):
                    is_done, value = await asyncio.shield(outcome)
            except TimeoutError as error:
                raise TimedOut(f"network: {what}: not done within {self._seconds:g} s") from error
            except asyncio.CancelledError:
                await asyncio.wait([outcome], timeout=self._seconds)
                raise
        if is_done:
            return value  # type: ignore[no-any-return]  # the outcome of `function`
        if isinstance(value, OSError):
            raise Unavailable(f"network: {what}: {value.strerror}") from value
        raise value


def enter_new() -> None:
    """Move the calling thread to a new network namespace. The thread must end afterwards."""
    call("unshare", _CLONE_NEWNET)


def hold(path: Path) -> None:
    """Mount the calling thread's network namespace on the file `path`, so that it exists after the thread's end."""
    call("mount", b"/proc/thread-self/ns/net", os.fsencode(path), None, _MS_BIND, None, path=path)


@contextlib.contextmanager
def entered(path: Path) -> Iterator[int]:
    """Move the calling thread into the network namespace at `path`. The thread must end afterwards.

    Yields a descriptor of the namespace.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", descriptor, _CLONE_NEWNET)
        yield descriptor
    finally:
        os.close(descriptor)


def unmount(path: Path) -> None:
    """Unmount the namespace from the file `path`. The kernel removes the namespace once nothing uses it."""
    call("umount2", os.fsencode(path), _MNT_DETACH, path=path)


# --- private ---


def _start(function: Callable[[], object]) -> asyncio.Future[tuple[bool, Any]]:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[bool, Any]] = loop.create_future()

    def settle(is_done: bool, value: object) -> None:
        if not outcome.done():
            outcome.set_result((is_done, value))

    def work() -> None:
        try:
            ended: tuple[bool, object] = (True, function())
        except Exception as error:  # noqa: BLE001 - handed to the caller
            ended = (False, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
            loop.call_soon_threadsafe(settle, *ended)

    threading.Thread(target=work, name="pod-namespace", daemon=True).start()
    return outcome
