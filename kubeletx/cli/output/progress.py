"""Shows the progress of an image pull as one line on the terminal, which is erased at the end.

    docker.io/library/nginx:1.27 unpacking  [==========>         ]   52 %  31.2MB of 60MB  4 s

The caller must use it only if the output is a terminal, not a pipe or a file.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from kubeletx.kube.text.human import human_bytes

BAR_WIDTH = 20
REDRAW_SECONDS = 0.1
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Context manager that shows a progress line on the terminal, and erases it at its end.

    The line is cut to the width of the terminal, so that it never wraps.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        now: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._out = out
        self._now = now
        self._width = width
        self._began = now()
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._out.write(_ERASE)
        self._out.flush()

    def show(self, text: str, done_bytes: int, total_bytes: int | None) -> None:
        """Draw the line, at most ten times a second; further calls do nothing. `total_bytes` None: not known yet."""
        now = self._now()
        if now - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = now
        line = progress_text(text, done_bytes, total_bytes, now - self._began)
        self._out.write(_ERASE + line[: max(0, self._width() - 1)])
        self._out.flush()


def progress_text(text: str, done_bytes: int, total_bytes: int | None, seconds: float) -> str:
    """Return the progress line, without control characters. `seconds`: time since the pull began. Pure."""
    parts = ["".join(c if c.isprintable() else "?" for c in text)]
    if total_bytes:
        share = min(1.0, max(0.0, done_bytes / total_bytes))
        filled = int(share * BAR_WIDTH)
        bar = "=" * filled + (">" if filled < BAR_WIDTH else "")
        parts += [f"[{bar:<{BAR_WIDTH}}]", f"{int(share * 100):3d} %"]
        parts.append(f"{human_bytes(done_bytes)} of {human_bytes(total_bytes)}")
    elif done_bytes:
        parts.append(human_bytes(done_bytes))
    parts.append(f"{int(seconds)} s")
    return "  ".join(parts)
