"""Settings of the agent's own process: OOM score and limit of open files."""

from __future__ import annotations

import resource
from pathlib import Path

import structlog

from ..config.tree import ProcessSettings

log = structlog.get_logger(__name__)

OOM_SCORE = Path("/proc/self/oom_score_adj")


def apply_process_settings(settings: ProcessSettings, oom_score: Path = OOM_SCORE) -> None:
    """Set the OOM score and the limit of open files of this process.

    OOM score None: not changed. Limit None: the soft limit becomes the hard one.

    If this user has no right to change a setting, a warning is logged, as in a kubelet. `oom_score`: the file in /proc.
    """
    if settings.oom_score_adj is not None:
        try:
            oom_score.write_text(f"{settings.oom_score_adj}\n")
        except OSError as error:
            log.warning("Failed to set oom_score_adj", value=settings.oom_score_adj, err=error.strerror)
    _raise_files(settings.max_open_files or None)


def _raise_files(number: int | None) -> None:
    """Set the soft and the hard limit of open files to `number`; None: raise the soft limit to the hard one.

    Without the right to set `number`, raise the soft limit as far as the hard limit permits, and log a warning.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if number is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    except (OSError, ValueError):
        reached = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        log.warning("Failed to raise the limit of open files", value=number, reached=reached)
