"""Settings that all checks have, what a look may use, and the settled result of a check from its single looks. Pure.

unknown ─► ok      after `successes` good looks in a row
any     ─► failed  after `failures` bad looks in a row
any     ─► unknown after `failures` looks in a row without an answer
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..model import CheckLevel
from ..topics import KubeletxStatus
from ..watchdog.ages import WatchedAgent

_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)(%|[KMGT]i)?")
_MOST_CHARACTERS: Final = 200
_UNITS: Final = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


class CheckOutcome(msgspec.Struct, frozen=True):
    """Answer of one look. `ok` None: the look gave no answer. `message`: one line with the measured value.

    `counters`: numbers that the next look gets as `LookFacts.before`, for differences.
    """

    ok: bool | None
    message: str = ""
    counters: dict[str, int] = {}


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """State of a check from look to look. `ok`: settled result. `last`: answer of the last look, `row` times in a row.

    `looked`: second of the tick of the last look; None: none yet.
    """

    ok: bool | None = None
    last: bool | None = None
    row: int = 0
    message: str = ""
    looked: int | None = None


def settle(record: CheckRecord, outcome: CheckOutcome, *, failures: int, successes: int) -> CheckRecord:
    """Return the record after a look. The last `row` looks had the same answer."""
    row = record.row + 1 if outcome.ok is record.last else 1
    limit = successes if outcome.ok else failures
    message = " ".join(outcome.message.split())[:_MOST_CHARACTERS]
    is_settled = row >= limit
    if not is_settled and outcome.ok is not record.ok:
        message = f"{row} of {limit} in a row: {message}"
    return replace(
        record,
        ok=outcome.ok if is_settled else record.ok,
        last=outcome.ok,
        row=min(row, limit),
        message=message,
    )


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

    def differences(self, counters: Mapping[str, int]) -> dict[str, int] | None:
        """Return how much counters have grown since the last look; None: there was none, or they began again."""
        if not counters.keys() <= self.before.keys():
            return None
        grown = {name: value - self.before[name] for name, value in counters.items()}
        return grown if min(grown.values()) >= 0 else None


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One entry of section ``checks``; each kind adds its own fields. Its kind is the name of the check unless `name` is set.

    `period`: seconds of ticks between two looks. `deadline`: real seconds of one look; without an answer it counts as failed.
    `failures`, `successes`: looks in a row after which the result changes.
    """

    name: str = ""
    level: CheckLevel = CheckLevel.WANTED
    period: Annotated[int, Meta(ge=10, le=86400)] = 30
    deadline: Annotated[float, Meta(ge=0.1, le=300)] = 10.0
    failures: Annotated[int, Meta(ge=1, le=100)] = 3
    successes: Annotated[int, Meta(ge=1, le=100)] = 1

    blocks: ClassVar[bool] = False
    """A look may block, so that it needs a thread."""
    spare_seconds: ClassVar[float] = 0.0
    """Real seconds after the deadline in which a look ends by itself."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        """Look once. Raises OSError and ValueError if there is nothing to look at."""
        raise NotImplementedError  # each kind has its own; a Struct cannot be an abstract base class


def first_look(counters: dict[str, int]) -> CheckOutcome:
    """Return the outcome without differences."""
    return CheckOutcome(None, "the first look only counts", counters)


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
