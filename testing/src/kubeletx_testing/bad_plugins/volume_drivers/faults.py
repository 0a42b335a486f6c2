"""Volume drivers on plain directories: a correct one, and one for each fault.

The docstring of a class is the fault. Each needs only a directory for its state, and no root.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from msgspec.structs import replace

from kubeletx.api import (
    BaseVolumeDriver,
    InvalidPod,
    NotFound,
    ReadyVolume,
    VolumeCapabilities,
    VolumeRequest,
    VolumeStats,
)


class PlainVolumeDriver(BaseVolumeDriver):
    """Volume driver without a fault: a volume is the empty directory that the agent made as its target."""

    def __init__(self, state: Path) -> None:
        """`state`: a directory that the drivers with a fault may use."""
        super().__init__(None, None)  # type: ignore[arg-type]  # it uses no host
        self.state = state

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Refuse block volumes."""
        if request.is_block:
            raise InvalidPod(field="volumeMode", problem="there are no block devices", fix="use Filesystem")
        return ReadyVolume(read_only=request.read_only)

    async def release(self, request: VolumeRequest) -> None:
        """Remove the directory with its files."""
        shutil.rmtree(request.target, ignore_errors=True)


class ForgetfulVolumeDriver(PlainVolumeDriver):
    """Volume driver whose `release` does nothing."""

    async def release(self, request: VolumeRequest) -> None:
        """Return at once."""


class SharingVolumeDriver(PlainVolumeDriver):
    """Volume driver whose volumes are all the same directory."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Return the directory above the target."""
        return replace(await super().prepare(request), path=str(Path(request.target).parent))


class LosingVolumeDriver(PlainVolumeDriver):
    """Volume driver whose second `prepare` of a volume removes its files."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Make the directory empty."""
        await super().release(request)
        _make(Path(request.target))
        return await super().prepare(request)


class StrictVolumeDriver(PlainVolumeDriver):
    """Volume driver whose `release` raises NotFound if there is nothing to release."""

    async def release(self, request: VolumeRequest) -> None:
        """Require the directory."""
        if not _exists(request.target):
            raise NotFound(f"volume {request.name} is not prepared")
        await super().release(request)


class RememberingVolumeDriver(PlainVolumeDriver):
    """Volume driver that releases only what the same object has prepared, so nothing after a restart of the agent."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Remember the target, and put a file into it."""
        ready = await super().prepare(request)
        self.__dict__.setdefault("targets", set()).add(request.target)
        _touch(Path(request.target, "prepared"))
        return ready

    async def release(self, request: VolumeRequest) -> None:
        """Release remembered targets."""
        if request.target in self.__dict__.get("targets", ()):
            await super().release(request)


class OptionVolumeDriver(PlainVolumeDriver):
    """Volume driver whose `release` needs an option of the request, which is not known if the journal is lost."""

    async def release(self, request: VolumeRequest) -> None:
        """Read the option first."""
        request.options["size"]
        await super().release(request)


class TellingVolumeDriver(PlainVolumeDriver):
    """Volume driver whose result contains a secret, so that it is in the pod's journal."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Return the secrets as the name of the device."""
        ready = await super().prepare(request)
        return replace(ready, device=" ".join(value.decode() for value in request.secrets.values()))


class EagerVolumeDriver(PlainVolumeDriver):
    """Volume driver whose factory writes a file."""

    def __init__(self, state: Path) -> None:
        """Write a new file."""
        super().__init__(state)
        _touch(state / f"made-{time.monotonic_ns()}")


class LateVolumeDriver(PlainVolumeDriver):
    """Volume driver whose `prepare` ends when it is cancelled, while its thread continues."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Make a file in the volume after a while, on a thread."""
        ready = await super().prepare(request)
        await asyncio.to_thread(_touch_late, Path(request.target, "late"))
        return ready


class OverstatingVolumeDriver(PlainVolumeDriver):
    """Volume driver whose `stats` reports more used than there is."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Declare statistics."""
        return replace(await super().prepare(request), capabilities=VolumeCapabilities(stats=True))

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        """Return figures that contradict each other."""
        return VolumeStats(capacity_bytes=1000, used_bytes=2000)


class WritableVolumeDriver(PlainVolumeDriver):
    """Volume driver that ignores `VolumeRequest.read_only`."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Return a volume that can be written."""
        return replace(await super().prepare(request), read_only=False)


class ChangingVolumeDriver(PlainVolumeDriver):
    """Volume driver that adds its defaults to the options of the request, which the agent stores."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Add a default to the options."""
        request.options.setdefault("size", "1Mi")
        request.options["mode"] = "0700"
        return await super().prepare(request)


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _exists(path: str) -> bool:
    return Path(path).exists()


def _touch(path: Path) -> None:
    _make(path.parent)
    path.touch()


def _touch_late(path: Path) -> None:
    time.sleep(0.1)
    _touch(path)
