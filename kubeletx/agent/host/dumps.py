"""`write_dump`: writes the stacks of all threads to a file, for a process that is blocked.

It takes no lock of Python's logging, and works while the event loop is blocked.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

DIRECTORY = "dumps"
"""Directory of the dumps below the agent's root directory."""
MOST_DUMPS = 10
"""Number of dumps that are kept; older ones are deleted."""


def write_dump(root: Path, what: str, lines: Sequence[str]) -> Path | None:
    """Write `lines` and the stacks of all threads to ``<root>/dumps/<time>-<what>.txt``; return the file's path.

    None if it cannot be written, for example to a full disk. The newest `MOST_DUMPS` dumps are kept.
    """
    now = datetime.now(UTC)
    directory = root / DIRECTORY
    path = directory / f"{now:%Y%m%dT%H%M%S.%fZ}-{what}.txt"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(directory.glob("*.txt"))[: -(MOST_DUMPS - 1)]:
            old.unlink(missing_ok=True)
        with path.open("w") as file:
            file.write("\n".join([f"time: {now:%Y-%m-%dT%H:%M:%S.%fZ}", *lines, "", ""]))
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)
    except OSError:
        return None
    return path
