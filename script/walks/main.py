"""Runs the walks, and prints their times to the first success."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kubeletx_testing.lab import Lab, LabError

from .walk import LIMIT_SECONDS, Walk
from .walks import WALKS


def main() -> int:
    """Run the walks of the command line; exit status 0 if each succeeded within the limit and left nothing."""
    parser = argparse.ArgumentParser(prog="script/newcomers")
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"one of {', '.join(WALKS)}; default: all")
    names = parser.parse_args().walks or list(WALKS)
    if unknown := set(names) - WALKS.keys():
        parser.error(f"no walk {', '.join(sorted(unknown))}; known: {', '.join(WALKS)}")
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="kx-") as directory:
        return run_walks(names, Path(directory) / "lab", console)


def run_walks(names: list[str], base: Path, console: Console) -> int:
    """Run the walks in a lab of `base`; returns the exit status."""
    table = Table("WALK", "FIRST SUCCESS AFTER", "RESULT", box=None, pad_edge=False)
    failed = False
    lab = Lab(base, containerds=("containerd",), say=console.print)
    with lab:
        for name in names:
            console.print(f"\n{WALKS[name].__doc__}")
            walk = Walk(lab, name, console.print)
            try:
                WALKS[name](walk)
                result = "well" if (walk.seconds or 0) <= LIMIT_SECONDS else f"over {LIMIT_SECONDS} s"
            except LabError as error:
                result = "failed"
                console.print(f"failed: {error}")
            failed = failed or result != "well"
            table.add_row(name, f"{walk.seconds:.0f} s" if walk.seconds is not None else "-", result)
    console.print("", table, sep="\n")
    if left := lab.leftovers():
        console.print("left behind:", *left, sep="\n  ")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
