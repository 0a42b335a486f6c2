"""Command ``python -m kubeletx_testing.lab``.

``check`` lists what this machine lacks for a lab. ``machine-image CACHE`` makes the disk of `machines` if it is not beside
this directory of packed images, prints each step, and last its path. ``sweep DIRECTORY`` removes what an aborted lab with this base
directory left behind. ``cgroup-v2 RESULTS COMMAND...`` runs a command in a guest with cgroup v2, in the present
directory; its files in /run/results are in the directory RESULTS. The exit status is that of the command. See
`cgroup_v2_guest`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from .cgroup_v2_guest import run_with_cgroup_v2
from .lab import require
from .machines import load_machine_image
from .process import LabError
from .sweep import clean, leftovers

_USAGE = "usage: python -m kubeletx_testing.lab check | sweep DIRECTORY | machine-image CACHE | cgroup-v2 RESULTS COMMAND..."
_GUEST_SECONDS = 3600.0


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status: 0, or 1 after printing the reasons, one per line."""
    match arguments:
        case ["check"]:
            try:
                require()
            except LabError as err:
                return _fail(str(err))
            return 0
        case ["sweep", directory]:
            base_dir = Path(directory).resolve()
            clean(base_dir)
            left = leftovers(base_dir)
            return _fail("\n".join(left)) if left else 0
        case ["machine-image", cache]:
            return _make_image(Path(cache))
        case ["cgroup-v2", results, *command] if command:
            return _run_in_guest(Path(results).resolve(), command)
        case _:
            return _fail(_USAGE)


def _make_image(cache: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # removes what was begun
    try:
        _show(str(load_machine_image(cache, say=_show)))
    except LabError as err:
        return _fail(str(err))
    return 0


def _run_in_guest(results: Path, command: list[str]) -> int:
    results.mkdir(parents=True, exist_ok=True)
    try:
        done = run_with_cgroup_v2(command, results, directory=Path.cwd(), timeout_seconds=_GUEST_SECONDS)
    except LabError as err:
        return _fail(str(err))
    sys.stdout.write(done.output)
    if done.status is None:
        return _fail(f"the guest ended before the command:\n{done.console}")
    return done.status


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
