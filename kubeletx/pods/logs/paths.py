"""Paths of container logs, relative to the sandbox's log directory. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import LogMode

RAW_SUFFIX: Final = ".raw"


def log_path(container: str, attempt: int, log_mode: LogMode = LogMode.FILE) -> str:
    """Path of one attempt's log, relative to the sandbox's log directory.

    The log itself is ``<container>/<attempt>.log``; a raw file is in the same directory (see `raw_files`).
    """
    suffix = RAW_SUFFIX if log_mode is LogMode.RAW_FILE else ".log"
    return f"{container}/{attempt}{suffix}"


def raw_path(log_file: Path) -> Path:
    """Path of the raw file that a runtime writes for `log_file`: ``0.log`` becomes ``0.raw``."""
    return log_file.with_suffix(RAW_SUFFIX)
