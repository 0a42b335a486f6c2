"""The command line. `start` is the entry point of ``kubeletx``."""

from __future__ import annotations

import gc
import sys


def start() -> None:
    """Run the command line. The guardian and node remedy start without the imports of the other commands."""
    try:
        _run()
    except ModuleNotFoundError:
        if missing := _missing_libraries():
            sys.exit(
                f"Error: {sys.executable} lacks libraries that kubeletx needs: {', '.join(missing)}; install them with "
                f"'{sys.executable} -m pip install {' '.join(missing)}', or Debian's packages python3-NAME"
            )
        raise


def _run() -> None:
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


def _missing_libraries() -> list[str]:
    """Return the distributions that kubeletx needs and that are not installed, as for a zipapp."""
    import re
    from importlib import metadata

    needed = [
        re.split(r"[^\w.-]", one)[0] for one in metadata.requires("kubeletx") or () if "extra ==" not in one
    ]
    installed = {str(one.metadata["Name"]).lower().replace("_", "-") for one in metadata.distributions()}
    return sorted(set(needed) - installed)
