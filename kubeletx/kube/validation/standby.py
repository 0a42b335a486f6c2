"""Rules for the annotations ``kubeletx.io/standby`` and ``kubeletx.io/standby-strategy``."""

from __future__ import annotations

from typing import Final

from kubeletx.api import names

from ..types.core import Pod
from .problems import Problems

STANDBY_WORDS: Final = ("standby", "hibernated")
"""Values of annotation ``kubeletx.io/standby``."""


def check_standby(pod: Pod, problems: Problems) -> None:
    """Check the annotations on standby: known state, no empty strategy."""
    notes = pod.metadata.annotations
    field = f"metadata.annotations[{names.STANDBY}]"
    problems.one_of(field, notes.get(names.STANDBY), STANDBY_WORDS)
    if names.STANDBY_STRATEGY in notes and not notes[names.STANDBY_STRATEGY]:
        problems.add(
            f"metadata.annotations[{names.STANDBY_STRATEGY}]", "is empty", "name a strategy, or remove it"
        )
