"""Pictures: PPM becomes PNG."""

from __future__ import annotations

import struct
import zlib

import pytest
from kubeletx_libvirt.screenshot import PNG_SIGNATURE, as_png

from kubeletx.api import Internal

PIXELS = bytes(range(18))


def test_a_ppm_becomes_a_png_with_the_same_pixels() -> None:
    png = as_png(b"P6\n# by an emulator\n3 2\n255\n" + PIXELS)
    assert png.startswith(PNG_SIGNATURE)
    parts = parts_of(png)
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", parts[b"IHDR"]) == (3, 2, 8, 2, 0, 0, 0)
    assert zlib.decompress(parts[b"IDAT"]) == b"\0" + PIXELS[:9] + b"\0" + PIXELS[9:]


def test_a_png_stays_as_it_is() -> None:
    assert as_png(PNG_SIGNATURE + b"rest") == PNG_SIGNATURE + b"rest"


@pytest.mark.parametrize(
    "picture", [b"", b"GIF89a", b"P6 3 2 65535\n" + PIXELS, b"P6 3 2 255\n" + PIXELS[:-1]]
)
def test_anything_else_is_an_error(picture: bytes) -> None:
    with pytest.raises(Internal):
        as_png(picture)


def parts_of(png: bytes) -> dict[bytes, bytes]:
    parts, at = {}, len(PNG_SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size) == (zlib.crc32(kind + data),)
        parts[kind] = data
        at += size + 12
    return parts
