"""script/demo in a terminal, as a newcomer runs it: from an empty cache, and with Ctrl-C in the middle."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import time
from pathlib import Path

import pytest

from kubeletx_testing.lab import leftovers

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache"
ERASES_LINE = "\x1b[2K"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
SECONDS = 280
INTERRUPT = b"\x03\x03"
"""Ctrl-C twice, as an impatient user presses it."""


def forget_images() -> None:
    """Empty the demo's cache."""
    for name in ("images", "machines"):
        shutil.rmtree(CACHE / name, ignore_errors=True)


def run_demo(*, interrupt_at: str) -> tuple[int, str]:
    """Run the demo in a pseudo-terminal of its own, with Ctrl-C when it prints `interrupt_at`; exit status and output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(
            "bash", ["bash", "script/demo", "--once"], {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
        )
    output, is_sent, deadline = "", False, time.monotonic() + SECONDS
    try:
        while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                text = os.read(terminal, 65536).decode(errors="replace")
                output += CONTROL.sub("", text.replace(ERASES_LINE, "\n"))
            except OSError:  # EIO: the demo has ended
                break
            if not is_sent and interrupt_at in output:
                is_sent = os.write(terminal, INTERRUPT) > 0
        else:
            raise AssertionError(f"the demo runs after {SECONDS} s:\n{output[-4000:]}")
    finally:
        os.close(terminal)  # hangs up, which ends a demo that still runs
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert is_sent, output
    return status, output


def standby_mebibytes(output: str) -> tuple[float, ...]:
    """Memory of the demo's pod while it runs, when it is hibernated, and when it is hibernated again."""
    rows = ("it runs", "kx pod standby --hibernate", "the connection ends")
    found = [re.search(rf"^{row} +([\d.]+) MiB", output, re.MULTILINE) for row in rows]
    assert all(found), output
    return tuple(float(one[1]) for one in found if one is not None)


@pytest.mark.timeout(300)
def test_the_demo_runs_containers_and_a_machine_where_they_asked_to_be_and_leaves_nothing() -> None:
    forget_images()
    status, output = run_demo(interrupt_at="stopping and removing everything")  # which goes on to its end
    assert status == 0, output
    assert re.search(
        r"\d s  (downloading \S+ \(\d of 5 packages\)|packing the root|writing the disk)", output
    )
    assert "every pod is where it asked to be" in output
    assert re.search(r"machine-demo +libvirt-qemu +libvirt-qemu +Running +1/1 +0 +[0-9.]+", output)
    assert "hello from guest" in output
    assert re.search(r"web-a-demo +machine-demo +guest", output)
    assert re.search(r"machine-demo +web-a-demo +served by containerd-a", output)
    before, after, again = standby_mebibytes(output)
    assert before > 40
    assert after < before / 2
    assert again < before / 2
    assert re.search(r"curl http://127\.0\.0\.1:\d+/ +'catalog of the demo', \d+ ms later", output)
    assert re.search(
        r"kx describe pod says:\n  Hibernated since .*memory: [\d.]+ MiB before, [\d.]+ MiB after",
        output,
    )
    assert re.search(r"the core creates the pod +frozen [\d.]+ s later", output)
    assert re.search(r"the core opens the session +woken, and Available \d+ ms later", output)
    assert re.search(r"curl http://[\d.]+:8080/ann +'42'", output)
    assert re.search(r"the core closes the session +frozen again \d+ ms later", output)
    assert re.search(r"\n  ann +.*Terminated", output)
    assert re.search(r"\n  127\.0\.0\.1:\d+ +seed +registered", output)
    assert re.search(r"writer-demo +containerd-a +written by writer-demo", output)
    assert re.search(r"reader-demo +containerd-b +written by writer-demo", output)
    assert re.search(r"reader-demo/notes +kubeletx\.io/storage .*ready", output)
    assert "reader-demo is gone, with mount, device and attachment" in output
    assert "counters is gone, with certificate and metadata" in output
    assert "machine-demo is gone, with emulator, disk and address" in output
    assert "nothing is left" in output
    assert leftovers(ROOT / ".demo" / "lab") == []


@pytest.mark.parametrize(
    "stage",
    [
        "packing images",
        "making bridge",
        "waiting for containerd-a",
        "starting kubeletx",
        "waiting for the guest to boot",
        "waiting for the guest's disk",  # the last: it empties the cache that the others use
    ],
)
@pytest.mark.timeout(300)
def test_an_interrupt_ends_the_demo_in_every_stage_and_leaves_nothing(stage: str) -> None:
    if stage == "waiting for the guest's disk":
        forget_images()
    status, output = run_demo(interrupt_at=stage)
    assert (status, "nothing is left" in output, "Traceback" in output) == (130, True, False), output
    assert leftovers(ROOT / ".demo" / "lab") == []
    assert not (ROOT / ".demo" / "lab").exists()
    assert list((CACHE / "machines").glob("build-*")) == []
