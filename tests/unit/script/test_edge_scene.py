"""The demo's scene of OS upgrades, with a real guardian on simulated slots."""

from __future__ import annotations

import io

from rich.console import Console

from script.demonstration.edge import show_upgrades


def test_an_image_falls_back_and_is_committed_at_the_second_try() -> None:
    console = Console(file=io.StringIO(), width=120)
    show_upgrades(console, tick="50ms")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    words = [
        "install IMGB: accepted",
        "(Update)",
        "(Fallback)",
        "retry IMGB: accepted",
        "(Update)",
        "committed",
    ]
    place = 0
    for word in words:
        place = shown.index(word, place)
