"""The command line. `start` is the entry point of ``kubeletx``."""

from __future__ import annotations

import gc
import sys


def start() -> None:
    """Run the command line. The guardian and node remedy start without the imports of the other commands."""
    if sys.argv[1:2] == ["health"]:
        from kubeletx.health.main import main as run_health

        sys.exit(run_health(sys.argv[2:]))
    if sys.argv[1:2] == ["remedy"]:
        from kubeletx.remedy.main import main as run_remedy

        sys.exit(run_remedy(sys.argv[2:]))
    gc.set_threshold(100_000)  # no collection during the imports: 10 ms of a short command
    from .main import main as run_all

    try:
        run_all()
    finally:
        gc.freeze()  # none at the end of the process: another 10 ms
