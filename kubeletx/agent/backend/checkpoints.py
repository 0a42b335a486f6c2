"""Checkpoints of containers: archives in ``<root-dir>/checkpoints``, a directory that only root can read.

Source: kubelet, pkg/kubelet/kubelet.go CheckpointContainer.
"""

from __future__ import annotations

from pathlib import Path

from kubeletx.api import Clock
from kubeletx.server.views import PodTarget

from .pods import PodBackend

TIMEOUT_SECONDS = 120.0


class CheckpointBackend:
    """Writes checkpoints of running containers to archive files. Implements `CheckpointSource`."""

    def __init__(self, pods: PodBackend, root_dir: Path, clock: Clock) -> None:
        self._pods = pods
        self._directory = root_dir / "checkpoints"
        self._clock = clock

    async def checkpoint(self, target: PodTarget, container: str, timeout_seconds: float | None) -> str:
        moment = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"checkpoint-{target.name}_{target.namespace}-{container}-{moment}.tar"
        self._pods.find_container(
            target, container
        )  # raises unless the container exists: only then its name is safe in a path
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._directory / name
        await self._pods.checkpoint(target, container, path, timeout_seconds or TIMEOUT_SECONDS)
        return str(path)
