"""A process that takes volumes on command: ``python -m tests.integration.storage.taker FILE NODE``.

Each line of its input is the name of a volume; each line of its output is ``won`` or ``lost``, or with ``release NAME``
``released``. Its node has a boot ID of its own, as another machine would.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import structlog
from kubeletx_flexvolume.agent.background import Attachments
from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.attachments.node import LocalVolume
from kubeletx_flexvolume.values import Holder, StorageVolume

from kubeletx.api import Conflict, SystemClock


class NoVolumes:
    """Volumes of a node that mounts nothing."""

    def volumes(self) -> list[LocalVolume]:
        return []

    def find(self, name: str) -> None:
        return None

    async def drop(self, volume: StorageVolume, *, why: str, force: bool = False) -> None:
        return


def volume(name: str) -> StorageVolume:
    return StorageVolume(name=name, backend="loop", image=f"{name}.img")


def holder(node: str) -> Holder:
    return Holder(
        node=node,
        boot_id=f"{node}-boot",
        pod_namespace="default",
        pod=f"{node}-pod",
        pod_uid=f"{node}-uid",
        mount_dir=f"/pods/{node}-uid/v",
    )


async def attempt(made: Attachments, node: str, line: str) -> str:
    """Do what one line says."""
    verb, _, name = line.rpartition(" ")
    if verb == "release":
        await made.book.release(volume(name), holder(node))
        return "released"
    try:
        await made.book.take(volume(name), holder(node))
    except Conflict:
        return "lost"
    return "won"


async def main(path: Path, node: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with tempfile.TemporaryDirectory() as state:
        config = AgentConfig(node_name=node, boot_id=f"{node}-boot", state_dir=Path(state), records=path)
        made = Attachments(
            config,
            backends={},
            local=NoVolumes,
            blocking=asyncio.to_thread,
            clock=SystemClock(),
            silent_seconds=3600,
        )
        await made.before_serving()
        print("ready", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(await attempt(made, node, line), flush=True)
        await made.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
