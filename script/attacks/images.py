"""Attack: damaged and hostile qcow2 files against the checks before QEMU.

Each mutated image is refused with a reason or accepted with tables inside the file; nothing else is raised, and no
check takes long.
"""

from __future__ import annotations

import random
import struct
import tempfile
import time
from pathlib import Path

from kubeletx_libvirt.images.problems import Refused
from kubeletx_libvirt.images.qcow2 import HEAD_BYTES, check_complete, check_header

from kubeletx_testing.lab.process import run

from .servers import seeded
from .target import Broken

IMAGES = 100
"""Images of one round."""
CHECK_SECONDS = 2.0


def images(rounds: int, seed: int) -> str:
    """Check `IMAGES` mutated qcow2 images in each round; returns what was tried.

    Raises Broken for a failed check.
    """
    refused = 0
    with tempfile.TemporaryDirectory(prefix="kx-attack-") as name:
        whole = _sound_image(Path(name))
    for number in range(rounds):
        rng = seeded(seed, "images", number)
        refused += sum(_is_refused(_mutated(rng, whole)) for _ in range(IMAGES))
    return f"{rounds * IMAGES} images, {refused} refused"


def _sound_image(place: Path) -> bytes:
    """Bytes of a qcow2 file with some clusters in use, made by QEMU."""
    raw, image = place / "disk.raw", place / "disk.qcow2"
    raw.write_bytes(b"data" * 50_000 + bytes(1 << 20))
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image)
    return image.read_bytes()


def _is_refused(data: bytes) -> bool:
    began = time.monotonic()
    try:
        header = check_header(data[:HEAD_BYTES])
        check_complete(header, lambda at, length: data[at : at + length], len(data))
    except Refused:
        return True
    except Exception as err:
        raise Broken(f"an image of {len(data)} bytes raised {err!r}") from err
    finally:
        if (seconds := time.monotonic() - began) > CHECK_SECONDS:
            raise Broken(f"the check of an image of {len(data)} bytes took {seconds:.1f} s")
    return False


def _mutated(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(("header", "header", "byte", "cut"))
        if kind == "header":
            value = rng.choice((0, 1, 2**16, 2**32 - 1, 2**63, 2**64 - 1, rng.getrandbits(64)))
            struct.pack_into(">Q", data, rng.randrange(0, 112, 4), value)
        elif kind == "byte":
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif len(data) > 4096:
            del data[rng.randrange(200, len(data)) :]
    return bytes(data)
