"""Screenshots of a machine's display as PNG, and the machine's libvirt definition.

libvirt returns a picture in the emulator's format: PPM, or PNG with newer emulators. PPM is converted to PNG
here.
"""

from __future__ import annotations

import re
import struct
import zlib

import libvirt

from kubeletx.api import Internal, UnitId
from kubeletx_libvirt.domain_reader import get_on, read_definition
from kubeletx_libvirt.machinery import Part

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_BYTES = 256 << 20
_CHUNK = 256 * 1024
_PPM_HEADER = re.compile(rb"P6(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)\s")


class Pictures(Part):
    """Makes screenshots of one runtime's machines and reads their definitions.

    Implements `SupportsScreenshot` and `SupportsDefinition`.
    """

    async def screenshot(self, unit_id: UnitId) -> bytes:
        """Return the machine's display as a PNG file. Raises Conflict if the machine is off."""
        await get_on(self._domains, unit_id, "its display shows nothing")
        picture = await self._connection.use(_take_picture, unit_id)
        return await self._connection.call(as_png, picture)

    async def definition(self, unit_id: UnitId) -> str:
        """Return the domain XML of the running machine, or that for the next start if it is off; without secrets."""
        await self._domains.get(unit_id)
        return await self._connection.use(read_definition, unit_id)


def as_png(picture: bytes) -> bytes:
    """Convert a picture in PPM (P6, 8 bits per colour) to PNG; PNG is returned unchanged. Pure.

    Raises Internal for other formats.
    """
    if picture.startswith(PNG_SIGNATURE):
        return picture
    header = _PPM_HEADER.match(picture)
    if header is None or int(header[3]) != 255:
        raise Internal(f"the screenshot is neither PNG nor PPM with 8 bits: it begins with {picture[:16]!r}")
    width, height = int(header[1]), int(header[2])
    line = width * 3
    pixels = memoryview(picture)[header.end() :]
    if len(pixels) < line * height:
        raise Internal(
            f"the screenshot of {width}x{height} ended after {len(pixels)} of {line * height} bytes"
        )
    # Each line is preceded by its filter: 0, as it is.
    lines = b"".join(b"\0" + bytes(pixels[at : at + line]) for at in range(0, line * height, line))
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", size), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
    return PNG_SIGNATURE + b"".join(_part(kind, data) for kind, data in parts)


def _part(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# --- on the host's threads ---


def _take_picture(handle: libvirt.virConnect, uuid: str) -> bytes:
    domain = handle.lookupByUUIDString(uuid)
    stream = handle.newStream(0)
    domain.screenshot(stream, 0, 0)
    picture = bytearray()
    try:
        while data := stream.recv(_CHUNK):
            picture += data
            if len(picture) > _MOST_BYTES:
                raise Internal(f"the screenshot has more than {_MOST_BYTES >> 20} MiB")
    except BaseException:
        stream.abort()
        raise
    stream.finish()
    return bytes(picture)
