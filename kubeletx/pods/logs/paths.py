"""Paths of container logs, relative to the sandbox's log directory. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import LogMode

RAW_SUFFIX: Final = ".raw"


def log_path(container: str, attempt: int, log_mode: LogMode = LogMode.FILE) -> str:
    """Return the path of the log of one run of a container, relative to the sandbox's log directory.

    It is ``<container>/<attempt>.log``. In log mode raw-file, it is the path of the raw file,
    ``<container>/<attempt>.raw``, from which the agent writes the log (see `raw_files`). `attempt`: restart count.
    """
    suffix = RAW_SUFFIX if log_mode is LogMode.RAW_FILE else ".log"
    return f"{container}/{attempt}{suffix}"


def raw_path(log_file: Path) -> Path:
    """Return the path of the raw file from which the agent writes `log_file`: ``0.raw`` for ``0.log``."""
    return log_file.with_suffix(RAW_SUFFIX)
