"""The lowest line of the terminal while the demo works: since when, and how far the present step is; and live pictures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

_SILENT_SECONDS = 2.0
"""A step that ends before is not worth a line."""


class Progress:
    """Prints each step, and on a terminal shows its seconds and what `detail` says in a line that goes again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._detail = ""
        self._line = console.status(self, spinner="line")

    def step(self, text: str) -> None:
        """Print the name of the step that begins now."""
        self._console.print(text, style="dim", markup=False, highlight=False)
        self._began, self._detail = time.monotonic(), ""

    def detail(self, text: str) -> None:
        """Set how far the step is. Without a terminal, each new text is printed."""
        if text != self._detail and not self._console.is_terminal:
            self._console.print(f"  {text}", style="dim", markup=False, highlight=False)
        self._detail = text

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line during the block."""
        with self._line:
            yield

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the line during the block, in which a table is drawn instead."""
        self._line.stop()
        try:
            yield
        finally:
            self._line.start()

    def __rich__(self) -> Text:
        seconds = time.monotonic() - self._began
        return Text(
            f"{seconds:.0f} s  {self._detail}" if seconds > _SILENT_SECONDS else "", style="dim", end=""
        )


@contextlib.contextmanager
def live_picture(console: Console, draw: Callable[[], RenderableType]) -> Iterator[Callable[[], None]]:
    """Yield a function that draws the picture again. Without a terminal it is printed once, at the end."""
    if not console.is_terminal:
        try:
            yield lambda: None
        finally:
            console.print(draw(), highlight=False)
        return
    with Live(console=console, refresh_per_second=10) as live:
        yield lambda: live.update(draw())
