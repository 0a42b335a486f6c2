"""Settled result of a check from its single looks. Pure.

unknown ─► ok      after `successes` good looks in a row
any     ─► failed  after `failures` bad looks in a row
any     ─► unknown after `failures` looks in a row without an answer
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

MOST_CHARACTERS: Final = 200


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
    message = " ".join(outcome.message.split())[:MOST_CHARACTERS]
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
