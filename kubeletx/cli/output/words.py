"""Words for people: the present time, processes, and the most similar of several words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeletx.server.views import PluginProcessView


def now() -> datetime:
    """Return the present time in UTC, with its time zone."""
    return datetime.now(UTC)


def without_control(text: str) -> str:
    """Return the text with ``?`` for characters that are not printable, which could change the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def process_text(process: PluginProcessView) -> str:
    """Return process id, memory, CPU time and restarts, such as ``pid 12, 48Mi, CPU 0.31s, 0 restarts``."""
    from kubeletx.kube.text.human import mebibytes  # here: --help needs no kubeletx.kube

    restarts = f"{process.restarts} restart{'' if process.restarts == 1 else 's'}"
    return f"pid {process.pid}, {mebibytes(process.memory_bytes)}, CPU {process.cpu_seconds:g}s, {restarts}"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` with the most similar known word, or an empty text if none is similar."""
    import difflib  # here: only a typo needs its 0.5 MiB

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
