"""The command line as a process on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_SECONDS = 60.0


class Terminal:
    """What a command writes on a pseudo-terminal of `columns`."""

    def __init__(self, *args: str, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self._main, self._side = pty.openpty()
        self.resize(columns, lines)
        self.modes: list[Any] = termios.tcgetattr(self._side)
        known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubeletx", *args],
            stdin=self._side,
            stdout=self._side,
            stderr=self._side,
            start_new_session=True,
            env={**known, "TERM": "xterm", "PYTHONUTF8": "1", **environment},
        )
        self.text = ""

    def resize(self, columns: int, lines: int) -> None:
        termios.tcsetwinsize(self._side, (lines, columns))

    def read_until(self, wanted: str) -> str:
        """Read until `wanted` is in what was not returned yet; return that up to `wanted`."""
        ends = time.monotonic() + LONGEST_SECONDS
        while wanted not in self.text:
            ready = select.select([self._main], [], [], max(0.0, ends - time.monotonic()))[0]
            assert ready, f"no {wanted!r} in {self.text!r}"
            self.text += os.read(self._main, 65536).decode(errors="replace")
        before, found, self.text = self.text.partition(wanted)
        return before + found

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit code and the rest of its output."""
        code = self.process.wait(LONGEST_SECONDS)
        while select.select([self._main], [], [], 0)[0]:
            self.text += os.read(self._main, 65536).decode(errors="replace")
        assert termios.tcgetattr(self._side) == self.modes
        return code, self.text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)
        os.close(self._side)


@contextmanager
def terminal(*args: str, **options: Any) -> Iterator[Terminal]:
    """Context manager of a command on a pseudo-terminal; at its end, the process is killed."""
    made = Terminal(*args, **options)
    try:
        yield made
    finally:
        made.close()
