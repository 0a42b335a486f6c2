"""A file source that runs, with its sink and clock around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from kubeletx.static.file import FileSource
from kubeletx.static.local_objects import LocalObjects
from kubeletx.static.manifest import Manifest, ManifestReader
from kubeletx.testing.clock import FakeClock
from tests.unit.static.recording_sink import RecordingSink

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - {{name: main, image: "{image}"}}
"""


def manifest(name: str, image: str = "registry.local/app:1") -> str:
    return POD.format(name=name, image=image)


def fill(directory: Path, names: str) -> None:
    """Write a manifest for each letter, such as pod ``a`` in ``a.yaml``."""
    for name in names:
        (directory / f"{name}.yaml").write_text(manifest(name))


class Reader(ManifestReader, frozen=True):
    """Remembers what it has parsed; `bug` is the end of a path at which it fails."""

    bug: str
    origins: list[str] = msgspec.field(default_factory=list)

    def read(self, data: bytes, *, origin: str, source: str, seen_at: datetime) -> Manifest:
        if origin.endswith(self.bug):
            raise ZeroDivisionError("division by zero")
        self.origins.append(origin)
        return super().read(data, origin=origin, source=source, seen_at=seen_at)


class Running:
    """A file source that runs, with the sink and clock around it."""

    def __init__(
        self,
        path: Path,
        memory: Path | None = None,
        bug: str = "/",
        objects: LocalObjects | None = None,
    ) -> None:
        self.path = path
        self.reader = Reader(node_name="Node1", bug=bug, with_objects=objects is not None)
        self.sink = RecordingSink()
        self.clock = FakeClock()
        self.source = FileSource(
            path=path,
            sink=self.sink,
            reader=self.reader,
            clock=self.clock,
            memory=memory,
            objects=objects,
        )

    def write(self, name: str, text: str) -> None:
        """Write beside and rename, as careful tools do."""
        temporary = self.path / f".{name}.tmp"
        temporary.write_text(text)
        temporary.rename(self.path / name)

    async def synced(self) -> None:
        await self.sink.wait(lambda: self.sink.is_synced)

    async def settle_removals(self, reached: Callable[[], bool]) -> None:
        """Let removals be noticed and believed."""
        async with asyncio.timeout(60):
            while not reached():
                if (self.clock.next_wake_seconds or 99) <= 2:
                    self.clock.advance(0.2)
                await asyncio.sleep(0)

    async def list_again(self) -> None:
        """Let the next list be due, and done."""
        await self.clock.run_for(20.5)

    def pod(self, name: str) -> object:
        return next(pod for pod in self.sink.pods.values() if pod.name == name)


@asynccontextmanager
async def running(
    path: Path, memory: Path | None = None, bug: str = "/", objects: LocalObjects | None = None
) -> AsyncIterator[Running]:
    it = Running(path, memory, bug, objects)
    task = asyncio.create_task(it.source.run(), name="file-source")
    try:
        await it.synced()
        yield it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
