"""`FakeVolumeDriver`: a volume driver in memory and plain directories, for tests of the agent and of plugins.

A volume is a directory below `base`, by the name of the volume, and keeps its files after the release. Nothing is
mounted, so that no root is needed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeletx.api import (
    BaseVolumeDriver,
    InvalidPod,
    KubeletxError,
    ReadyVolume,
    Unsupported,
    VolumeCapabilities,
    VolumeRequest,
    VolumeStats,
)


class FakeVolumeDriver(BaseVolumeDriver):
    """Volume driver on plain directories; tests script it with `failures` and `held`. Implements `VolumeDriver`."""

    def __init__(self, base: Path, capabilities: VolumeCapabilities | None = None) -> None:
        """`base`: directory of all volumes. `capabilities` None: statistics and expansion, no fsGroup."""
        super().__init__(None, None)  # type: ignore[arg-type]  # the fake uses no host
        self._base = base
        self.capabilities = capabilities or VolumeCapabilities(fs_group=False, stats=True, expand=True)
        self.calls: list[str] = []
        """The calls in order, as ``METHOD VOLUME``."""
        self.secrets: dict[str, dict[str, bytes]] = {}
        """Secrets that `prepare` got last, by volume name."""
        self.prepared: dict[str, VolumeRequest] = {}
        """Requests of the volumes that are prepared, by target."""
        self.failures: dict[str, KubeletxError] = {}
        """Errors to raise, by ``METHOD VOLUME``; a call raises its error until the test removes it."""
        self.held: dict[str, asyncio.Event] = {}
        """Events that calls wait for, by ``METHOD VOLUME``."""
        self.sizes: dict[str, int] = {}
        """Sizes to which volumes were expanded, in bytes, by volume name."""

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        await self._begin("prepare", request)
        if "invalid" in request.options:
            raise InvalidPod(field="options.invalid", problem="is refused by the fake", fix="leave it out")
        if request.is_block:
            raise InvalidPod(
                field="volumeMode", problem="the fake has no block devices", fix="use Filesystem"
            )
        self.secrets[request.volume_name] = dict(request.secrets)
        path = self._path(request)
        path.mkdir(parents=True, exist_ok=True)
        self.prepared[request.target] = request
        return ReadyVolume(path=str(path), read_only=request.read_only, capabilities=self.capabilities)

    async def release(self, request: VolumeRequest) -> None:
        await self._begin("release", request)
        self.prepared.pop(request.target, None)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        await self._begin("stats", request)
        if not self.capabilities.stats:
            raise Unsupported(
                f"volume {request.volume_name}: the fake has no statistics; set capabilities.stats"
            )
        used = sum(path.stat().st_size for path in self._path(request).rglob("*") if path.is_file())
        return VolumeStats(capacity_bytes=1 << 30, used_bytes=used, available_bytes=(1 << 30) - used)

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        await self._begin("expand", request)
        if not self.capabilities.expand:
            raise Unsupported(
                f"volume {request.volume_name}: the fake does not expand; set capabilities.expand"
            )
        name = request.volume_name
        self.sizes[name] = max(size_bytes, self.sizes.get(name, 0))
        return self.sizes[name]

    async def _begin(self, method: str, request: VolumeRequest) -> None:
        call = f"{method} {request.volume_name}"
        self.calls.append(call)
        if (held := self.held.get(call)) is not None:
            await held.wait()
        if (error := self.failures.get(call)) is not None:
            raise error

    def _path(self, request: VolumeRequest) -> Path:
        return self._base / request.volume_name
