"""`make_directory`: makes a configured directory that the agent must be able to write."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletx.api import InvalidConfig


def make_directory(path: Path, field: str, mode: int = 0o755) -> Path:
    """Make the directory and its missing parents, and return its path.

    Raises InvalidConfig, naming the setting `field`, if the directory cannot be made or this user may not write to it.
    """
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
        why = "Permission denied"
    except OSError as error:
        usable, why = False, error.strerror or str(error)
    if not usable:
        raise InvalidConfig(
            field=field,
            problem=f"cannot use {path}: {why}",
            fix="choose a directory this user may write, or run as root",
        )
    return path
