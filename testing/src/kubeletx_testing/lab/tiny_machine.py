"""A virtual machine without an operating system: 193 bytes of code in the first sector of its disk.

It prints `UP` on the serial port. Then, at every tick of the BIOS's timer, it checks the power button, which
switches it off at once, and ejects devices that are to be unplugged. A letter typed at its serial port
triggers an action that guests do by themselves (see `Does`). It has no guest agent and no network. It is for
tests that need a guest but nothing inside it; `machines` has a guest for tests inside it.

A second machine counts its starts on its disk, for tests of disks over restarts.
"""

from __future__ import annotations

import enum
from pathlib import Path

UP = "tiny guest is up"
"""Line that the machine prints at each boot."""


class Does(enum.Enum):
    """An action of the machine. The value is the letter that triggers it at the serial port."""

    POWER_OFF = "o"
    REBOOT = "r"
    PANIC = "p"
    """Report a panic to the panic device, as a kernel does, and continue to run."""
    HANG = "w"
    """Start the i6300esb watchdog, which the machine must have, and never reset it: it fires two seconds later."""


_CODE = bytes.fromhex(
    # 00: cli; segments 0; stack below 0x7c00; each byte of the text at 0x7cc1 to port 0x3f8 until a zero
    "fa31c08ed88ed0bc007cfcbec17cbaf803ac84c07403eeebf8"
    # 19: sti; hlt; cli; PM1_EN (0x602) = power button; if PM1_STS (0x600) says it was pressed, go to 69
    "fbf4faba0206b80001efba0006edf6c401753d"
    # 2c: if the line status (0x3fd) has a byte, read it: o goes to 69, r to 72, p to 7a, w to 82
    "bafd03eca8017414baf803ec3c6f742d3c7274323c7074363c77743a"
    # 48: for each of 64 buses: select it (0xcd0), read which slots are to let go (0xcc4), let them go (0xcc8); to 19
    "6631c96689c8b2d0b60c66efb2c466ed6685c07404b2c866ef4180f94072e4ebb0"
    # 69: off: PM1_CNT (0x604) = sleep, type 0.  72: reset: 0xcf9 = 6.  7a: pvpanic (0x505) = panicked
    "ba0406b80020efeba7"
    "baf90cb006eeeb9f"
    "ba0505b001eeeb97"
    # 82: look through all PCI functions 0 for 8086:25ab; its register 0x60 = 4: ticks of a microsecond; 0x68 = 2: go
    "66bb000000806681c3000800006689d8e82200663d8680ab2575eb67668d4360e81200b80400ef67668d4368e80600b002eee962ff"
    # b7: select the PCI register eax and read it; dx stays at the data port (0xcfc)
    "baf80c66efb2fc66edc3"
)
_COUNTING_CODE = bytes.fromhex(
    # cli; segments 0; stack below 0x7c00; sti; keep the boot drive; read its second sector to 0x8000; one more; write
    "fa31c08ed88ec08ed0bc007cfcfb88166b7cb80102e84400fe060080b80103e83a00"
    # the count as a digit into the text; each byte of the text at 0x7c6c to port 0x3f8 until a zero
    "a000800430a2727cbe6c7cbaf803ac84c07403eeebf8"
    # go on to the last two lines when the second byte does not ask for more starts; PM1_CNT (0x604) = off
    "a00180380600807307ba0406b80020ef"
    # sti; hlt; PM1_EN (0x602) = power button; off if PM1_STS (0x600) says it was pressed; again
    "fbf4ba0206b80100efba0006edf6c40175e7ebec"
    # read (0x0201) or write (0x0301) the second sector of the boot drive through the BIOS; return; the drive; the text
    "bb0080b9020030f68a166b7ccd13c300" + b"boots 0\r\n\0".hex()
)
_SECTOR = 512
_SIGNATURE = b"\x55\xaa"
_DISK_BYTES = 1 << 20


def make_tiny_machine_image(directory: Path) -> Path:
    """Write the machine's disk (raw, 1 MiB) into `directory`; returns its path."""
    sector = (_CODE + f"{UP}\r\n\0".encode()).ljust(_SECTOR - len(_SIGNATURE), b"\0") + _SIGNATURE
    path = directory / "tiny.img"
    path.write_bytes(sector.ljust(_DISK_BYTES, b"\0"))
    return path


def make_counting_machine_image(directory: Path, *, starts: int = 1) -> Path:
    """Write the disk (raw, 1 MiB) of a machine that counts its starts and prints ``boots N``; returns its path.

    N is at most 9. At each of the first `starts` - 1 starts the machine switches itself off at once; at the
    last one it runs until the power button is pressed. The count is the first byte of the second sector.
    """
    path = directory / f"counting-{starts}.img"
    sector = _COUNTING_CODE.ljust(_SECTOR - len(_SIGNATURE), b"\0") + _SIGNATURE
    path.write_bytes((sector + bytes((0, starts))).ljust(_DISK_BYTES, b"\0"))
    return path
