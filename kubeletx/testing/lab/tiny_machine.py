"""A machine that needs no boot: 82 bytes of code in the first sector of its disk.

It prints `UP` on the serial port, then looks around at every tick of the BIOS's timer: at the power button it
switches itself off at once, and a device that is to be unplugged it lets go. It has no operating system, no guest
agent and no network. For tests of what happens around a guest; `machines` has one for what happens in it.
"""

from __future__ import annotations

from pathlib import Path

UP = "tiny guest is up"
"""What it prints."""

_CODE = bytes.fromhex(
    # cli; segments 0; stack below 0x7c00; each byte of the text at 0x7c52 to port 0x3f8 until a zero
    "fa31c08ed88ed0bc007cfcbe527cbaf803ac84c07403eeebf8"
    # sti; hlt; PM1_EN (0x602) = power button; if PM1_STS (0x600) says it was pressed, PM1_CNT (0x604) = off
    "fbf4ba0206b80001efba0006edf6c4017407ba0406b80020ef"
    # for each of 64 buses: select it (0xcd0), read which slots are to let go (0xcc4), let them go (0xcc8); again
    "6631c96689c8bad00c66efb2c466ed6685c07404b2c866ef4180f94072e5ebc7"
)
_SECTOR = 512
_SIGNATURE = b"\x55\xaa"
_DISK_BYTES = 1 << 20


def make_tiny_machine_image(directory: Path) -> Path:
    """Write the disk (raw, 1 MiB) into `directory` and return its path."""
    sector = (_CODE + f"{UP}\r\n\0".encode()).ljust(_SECTOR - len(_SIGNATURE), b"\0") + _SIGNATURE
    path = directory / "tiny.img"
    path.write_bytes(sector.ljust(_DISK_BYTES, b"\0"))
    return path
