"""Volumes of pods, and the threads that work on files."""

from __future__ import annotations

import msgspec

from kubeletx.api import BoundedThreadPool
from kubeletx.volumes.preparer import VolumePreparer

from ..host.file_threads import FileThreads
from .node import NodeRoom
from .part import Part, PartContext

VOLUME_THREADS = 16
"""Threads that measure volumes. Each file server that does not answer occupies one."""


class VolumesRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_volumes`: the part, and the preparer of volumes.

    `files`: threads for local file work. `measuring`: threads for calls that a dead file server may block.
    """

    part: Part
    files: FileThreads
    measuring: BoundedThreadPool
    preparer: VolumePreparer


def make_volumes(ctx: PartContext, node: NodeRoom) -> VolumesRoom:
    """Make the thread pools for files, and the preparer of volumes."""
    files, measuring = FileThreads(), BoundedThreadPool("volume-usage", VOLUME_THREADS)
    return VolumesRoom(
        part=Part(name="volumes", close=(files.close, measuring.close)),
        files=files,
        measuring=measuring,
        preparer=VolumePreparer(root_dir=ctx.config.root_dir, blocking=files, fields=node.context.fields()),
    )
