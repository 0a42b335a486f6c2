"""Component of the agent: volumes of pods, and the threads for blocking file work and for volumes that may hang."""

from __future__ import annotations

import msgspec

from kubeletx.api import BoundedThreadPool
from kubeletx.volumes.preparer import VolumePreparer

from ..host.file_threads import FileThreads
from .node import NodeAssembly
from .part import Part, PartContext

VOLUME_THREADS = 16
"""Number of threads that measure volumes, and of threads that prepare volumes.

A file server that does not answer blocks one of them.
"""
PATIENCE_SECONDS = 10.0
"""Time for which the preparation of a volume waits for a free thread, since many pods may start at the same time."""


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
