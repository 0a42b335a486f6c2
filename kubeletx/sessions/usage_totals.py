"""`UsageTotals`: what the sessions of each application have used on this node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from kubeletx.api.counting import Metric, Samples, counter

from .meter import SessionCosts
from .usage_records import UsageRecords, UsageTotal

TOTALS_LIMIT: Final = 200
"""Most applications with a total of their own. The one that was used longest ago is merged into `OTHERS`."""
OTHERS: Final = "/"


class UsageTotals:
    """Totals by ``namespace/application``, stored at each change. Their number is bounded, and their sum is complete."""

    def __init__(self, records: UsageRecords, limit: int) -> None:
        self.items: dict[str, UsageTotal] = {}
        self._records = records
        self._limit = limit

    def load(self, totals: Iterable[UsageTotal]) -> None:
        """Add stored totals; newer ones stay."""
        for total in totals:
            self.items.setdefault(total.key, total)

    def add(self, key: str, costs: SessionCosts, now: datetime) -> None:
        """Add costs to a total. `key`: ``namespace/application``."""
        known = self.items.get(key)
        if known is None and len(self.items) >= self._limit and key != OTHERS:
            oldest = min(self.items.keys() - {OTHERS}, key=lambda one: self.items[one].updated_at)
            total = self.items.pop(oldest)
            self._records.forget(total)
            self.add(OTHERS, total.costs, now)
        costs = known.costs.plus(costs) if known is not None else costs
        self.items[key] = UsageTotal(key=key, costs=costs, updated_at=now)
        self._records.note(self.items[key])

    def metrics(self) -> Iterator[Metric]:
        """Yield one counter for each figure."""
        for field, name, text in (
            ("opened", "sessions_opened", "Sessions that were open."),
            ("open_seconds", "session_open_seconds", "Seconds that sessions were open."),
            ("client_seconds", "session_client_seconds", "Seconds of all clients together."),
            ("cpu_seconds", "session_cpu_seconds", "CPU seconds of pods, divided among open sessions."),
            ("memory_byte_seconds", "session_memory_byte_seconds", "Memory of pods, multiplied by time."),
        ):
            source = partial(self._samples, field)
            yield counter(f"kubeletx_{name}_total", text, source, "namespace", "application")

    def _samples(self, field: str) -> Samples:
        return [(one.labels, getattr(one.costs, field)) for one in self.items.values()]
