"""A pod sink that remembers what it was told, and lets tests wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeletx.api import InvalidPod, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.pods.model.sources import Accepted, Outcome


class RecordingSink:
    """Implements `PodSink`. `calls` holds one line per call, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.pods: dict[PodUid, Pod] = {}
        self.errors: dict[str, tuple[str, PodUid | None]] = {}
        self.graces: dict[PodUid, tuple[int | None, bool]] = {}
        self.answer: Outcome = Accepted()
        self.is_synced = False
        self._reported = asyncio.Event()

    def update(self, source: str, pod: Pod) -> Outcome:
        self.pods[pod.uid] = pod
        self._note(f"update {pod.name}")
        return self.answer

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        pod = self.pods.pop(uid)
        self.graces[uid] = (grace_seconds, force)
        self._note(f"remove {pod.name}")

    def synced(self, source: str) -> None:
        self.is_synced = True
        self._note("synced")

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        self.errors[origin] = (str(error), uid)
        self._note(f"invalid {origin.rpartition('/')[2]}")

    def valid(self, source: str, origin: str) -> None:
        del self.errors[origin]
        self._note(f"valid {origin.rpartition('/')[2]}")

    def _note(self, line: str) -> None:
        self.calls.append(line)
        self._reported.set()

    @property
    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.pods.values())

    async def wait(self, reached: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until the condition holds; it is asked again after every call."""
        async with asyncio.timeout(seconds):
            while not reached():
                self._reported.clear()
                await self._reported.wait()
