"""Swap that a test switches on for itself: in zram, in a file, and in a file behind zswap; removed also after failures.

Each raises `NoSwap`, with the reason, if the kernel or the file system of this machine does not support it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

MEBIBYTES = 64
"""Size of the swap."""
_ZRAM = Path("/sys/class/zram-control")
_ZSWAP = Path("/sys/module/zswap/parameters/enabled")


class NoSwap(Exception):
    """This machine does not have that kind of swap; the message says why."""


@contextmanager
def zram() -> Iterator[None]:
    """Swap in a new zram device, which is memory."""
    if not (_ZRAM / "hot_add").exists():
        raise NoSwap("this kernel makes no zram devices")
    number = (_ZRAM / "hot_add").read_text().strip()
    device = Path(f"/dev/zram{number}")
    with ExitStack() as stack:
        stack.callback((_ZRAM / "hot_remove").write_text, number)
        if not device.exists():
            raise NoSwap(f"{device} does not appear here")
        Path(f"/sys/block/zram{number}/disksize").write_text(f"{MEBIBYTES}M")
        stack.callback(Path(f"/sys/block/zram{number}/reset").write_text, "1")
        _switch_on(device, stack)
        yield


@contextmanager
def swap_file(directory: Path) -> Iterator[None]:
    """Swap in a new file of a directory."""
    file = directory / "swap"
    with ExitStack() as stack:
        stack.callback(file.unlink, missing_ok=True)
        with file.open("wb") as opened:
            file.chmod(0o600)
            for _ in range(MEBIBYTES):
                opened.write(bytes(1 << 20))
        _switch_on(file, stack)
        yield


@contextmanager
def zswap(directory: Path) -> Iterator[None]:
    """Swap in a file, with zswap before it, which keeps compressed pages in memory."""
    if not _ZSWAP.exists():
        raise NoSwap("this kernel has no zswap")
    before = _ZSWAP.read_text().strip()
    with ExitStack() as stack:
        stack.callback(_ZSWAP.write_text, before)
        try:
            _ZSWAP.write_text("Y")
        except OSError as error:
            raise NoSwap(f"zswap cannot be enabled here: {error.strerror}") from error
        stack.enter_context(swap_file(directory))
        yield


def _switch_on(device: Path, stack: ExitStack) -> None:
    subprocess.run(["mkswap", "-q", device], check=True)
    done = subprocess.run(["swapon", device], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoSwap(f"swapon fails here: {done.stderr.strip()}")
    stack.callback(subprocess.run, ["swapoff", device], check=True)
