"""`Expander`: expands a prepared volume: the driver's ``expandvolume`` and ``expandfs``, or the node's own tools."""

from __future__ import annotations

from kubeletx.api import Unsupported, VolumeRequest

from ..device import Device
from ..errors import file_error, volume_error
from .driver import Command, FlexDriver
from .entries import FlexEntry
from .node import Node, measure
from .options import encode_options, volume_options
from .threads import Threads


class Expander:
    """Expands volumes. Callers hold the lock of the entry's key."""

    def __init__(self, node: Node, threads: Threads) -> None:
        """`threads`: for calls that may hang with a volume."""
        self._node = node
        self._threads = threads

    async def expand(
        self, entry: FlexEntry, request: VolumeRequest, driver: FlexDriver, size_bytes: int, until: float
    ) -> int:
        """Expand the volume and its file system; return the new size in bytes."""
        directory = entry.global_directory if entry.attach else request.target
        mounted = await self._node.find_mount(directory)
        before = request.capacity_bytes
        source = entry.device or (mounted.source if mounted is not None else "")
        device = Device(source, self._node.programs(entry.volume, directory, until))
        if mounted is not None:
            before = await self._capacity(entry, directory, until)
            if size_bytes <= before:  # a driver might shrink the volume
                return max(before, await device.find_size())
        options = encode_options(volume_options(request))
        sizes = str(size_bytes), str(before)
        reply = await driver.call(
            Command.EXPAND_VOLUME, (options, directory, *sizes), until=until, key=entry.key
        )
        grown = max(size_bytes, reply.new_size_bytes) if reply is not None else 0
        if not driver.capabilities.requires_fs_resize:
            return self._checked(grown, entry)
        arguments = (options, entry.device, directory, *sizes)
        reply = await driver.call(Command.EXPAND_FS, arguments, until=until, key=entry.key)
        if reply is not None:
            return max(size_bytes, reply.new_size_bytes)
        if mounted is None:
            return self._checked(grown, entry)
        try:
            return await device.grow(mounted, size_bytes)
        except Unsupported:  # such as a file system of a server, which has grown with the volume
            return self._checked(grown, entry)

    async def _capacity(self, entry: FlexEntry, directory: str, until: float) -> int:
        try:
            return (await self._threads.run_until(until, measure, directory)).capacity_bytes or 0
        except OSError as error:
            raise file_error(f"cannot measure volume {entry.volume}", error) from error

    def _checked(self, grown: int, entry: FlexEntry) -> int:
        """Return the size that the driver has made. Raises Unsupported if it has done nothing."""
        if not grown:
            raise volume_error(Unsupported, entry.volume, f"driver {entry.driver} does not expand volumes")
        return grown
