"""Settings that all checks have, and what a look may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from ..model import CheckLevel
from ..topics import KubeletxStatus
from ..watchdog.ages import WatchedAgent
from .settling import CheckOutcome

_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)(%|[KMGT]i)?")
_UNITS: Final = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


class LookFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the guardian at a look, and directories of the kernel.

    `before`: counters of the last look, empty at the first. `seconds`: real time since then. `agent`: last word of the node
    agent; None: there was none. `agent_silent`: seconds of ticks since it.
    """

    run: Path
    now: int
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    before: Mapping[str, int] = {}
    seconds: float = 0.0
    watched: Mapping[str, WatchedAgent] = {}
    agent: KubeletxStatus | None = None
    agent_silent: int = 0


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One entry of section ``checks``; each kind adds its own fields. Its kind is the name of the check unless `name` is set.

    `period`: seconds of ticks between two looks. `deadline`: real seconds of one look; without an answer it counts as failed.
    `failures`, `successes`: looks in a row after which the result changes.
    """

    name: str = ""
    level: CheckLevel = CheckLevel.WANTED
    period: int = 30
    deadline: float = 10.0
    failures: int = 3
    successes: int = 1

    blocks: ClassVar[bool] = False
    """A look may block, so that it needs a thread."""
    spare_seconds: ClassVar[float] = 0.0
    """Real seconds after the deadline in which a look ends by itself."""

    def __post_init__(self) -> None:
        for field, least, most in (
            ("period", 10, 86400),
            ("deadline", 0.1, 300),
            ("failures", 1, 100),
            ("successes", 1, 100),
        ):
            value = getattr(self, field)
            if not least <= value <= most:
                raise ValueError(f"{field} {value} is not between {least} and {most}")
        self.validate()

    def validate(self) -> None:
        """Check the fields of the kind. Raises ValueError."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        """Look once. Raises OSError and ValueError if there is nothing to look at."""
        raise NotImplementedError  # each kind has its own; a Struct cannot be an abstract base class


def amount(text: str, total: int) -> int:
    """Return a number such as ``512Mi`` or ``5%`` of `total`. Raises ValueError."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount such as 512Mi or 5%")
    number = float(match[1])
    return int(total * number / 100) if match[2] == "%" else int(number * _UNITS[match[2]])


def at_least(what: str, free: int, total: int, least: str) -> CheckOutcome:
    """Return the outcome for an amount that must not get smaller than `least`."""
    percent = 100 * free / total if total else 0
    return CheckOutcome(
        free >= amount(least, total), f"{percent:.1f}% of {what} free, {least} wanted at least"
    )


def at_most(what: str, value: float, most: float) -> CheckOutcome:
    """Return the outcome for a percentage that must not exceed `most`."""
    return CheckOutcome(value <= most, f"{what} {value:.1f}%, at most {most:g}%")
