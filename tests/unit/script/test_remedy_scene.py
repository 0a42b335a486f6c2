"""The demo's scene of node remedy, with a real controller and fence_dummy."""

from __future__ import annotations

import io

from rich.console import Console

from script.demonstration.remedy import show_remedy


def test_a_pod_moves_off_a_machine_that_was_switched_off_and_the_node_comes_back() -> None:
    console = Console(file=io.StringIO(), width=160)
    show_remedy(console, boot_seconds=0.5)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    place = 0
    for word in (
        "mark-unschedulable: cordoned",
        "off, verified",
        "pods released",
        "is back; web-0 runs on",
        "had written to its volume",
    ):
        place = shown.index(word, place)
