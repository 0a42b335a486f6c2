"""Component of the agent: volumes of pods, and the threads for blocking file work and for volumes that may hang."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeletx.api import BoundedThreadPool
from kubeletx.volumes.preparer import VolumePreparer

from .node import NodeAssembly
from .part import Part, PartContext

T = TypeVar("T")

TURNS = 8
LONG_SECONDS = 5.0
THREADS = 64
VOLUME_THREADS = 16
"""Number of threads that measure volumes, and of threads that prepare volumes.

A file server that does not answer blocks one of them.
"""
PATIENCE_SECONDS = 10.0
"""Time for which the preparation of a volume waits for a free thread, since many pods may start at the same time."""


class FileThreads:
    """Thread pool of bounded size for blocking calls on files. Implements `api.Blocking`.

    At most `turns` calls run at once. A call that takes longer than `long_seconds`, such as one to a dead file server,
    lets the next call start and keeps its thread. When `threads` threads are busy with such calls, new calls are refused.
    """

    def __init__(
        self, *, turns: int = TURNS, threads: int = THREADS, long_seconds: float = LONG_SECONDS
    ) -> None:
        self._pool = BoundedThreadPool("files", threads)
        self._turns = asyncio.Semaphore(turns)
        self._long_seconds = long_seconds

    @property
    def busy(self) -> int:
        """Number of threads that run a call."""
        return self._pool.busy

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run the function on a thread and return its result. Raises Unavailable if all threads are blocked."""
        await self._turns.acquire()
        turn = contextlib.ExitStack()  # releases once: at the end, or when the call has taken long
        turn.callback(self._turns.release)
        timer = asyncio.get_running_loop().call_later(self._long_seconds, turn.close)
        try:
            return await self._pool.run(function, *args)
        finally:
            timer.cancel()
            turn.close()

    def close(self) -> None:
        self._pool.close()


class VolumesAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The object that sets up pods' volumes, and two thread pools, from `make_volumes`.

    `files`: threads for local file work. `measuring`: threads for calls that a dead file server may block.
    """

    files: FileThreads
    measuring: BoundedThreadPool
    preparer: VolumePreparer


def make_volumes(ctx: PartContext, node: NodeAssembly) -> VolumesAssembly:
    """Build the thread pools for file work, and the object that sets up and tears down pods' volumes."""
    files, measuring = FileThreads(), BoundedThreadPool("volume-usage", VOLUME_THREADS)
    working = BoundedThreadPool(
        "volume-drivers", VOLUME_THREADS, owner="pool", patience_seconds=PATIENCE_SECONDS
    )
    preparer = VolumePreparer(
        root_dir=ctx.config.root_dir,
        blocking=files,
        fields=node.context.fields(),
        working=working.run,
        boot_id=ctx.host.boot_id,
    )
    ctx.made.add(
        Part(
            name="volumes",
            metrics=preparer.operations.metrics(),
            close=(files.close, measuring.close, working.close, preparer.close),
        )
    )
    return VolumesAssembly(files=files, measuring=measuring, preparer=preparer)
