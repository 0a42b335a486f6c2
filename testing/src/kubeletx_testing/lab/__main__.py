"""Command ``python -m kubeletx_testing.lab``.

``check`` lists what this machine lacks for a lab. ``sweep DIRECTORY`` removes what an aborted lab with this
base directory left behind.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .lab import require
from .process import LabError
from .sweep import clean, leftovers

_USAGE = "usage: python -m kubeletx_testing.lab check | sweep DIRECTORY"


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
        case _:
            return _fail(_USAGE)


def _fail(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
