"""Histograms of durations, and `Metric`, with which the object that counts describes its numbers to a scrape.

Adding a duration takes well under a microsecond: a bisection and an addition. Call all methods from the event loop's
thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

DEFAULT_BOUNDS: tuple[float, ...] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Upper bounds in seconds; the kubelet's default buckets."""


class Durations:
    """Histogram of durations, with one count per bucket (not cumulative).

    `counts[i]`: number of durations above `bounds[i-1]` and up to `bounds[i]`. The last item of `counts`: number
    of durations above all bounds. `sum_seconds`: sum of all durations.
    """

    __slots__ = ("bounds", "counts", "sum_seconds")

    def __init__(self, bounds: tuple[float, ...] = DEFAULT_BOUNDS) -> None:
        """`bounds`: upper bounds of the buckets, in seconds, in increasing order.

        If the kubelet has a metric of the same name, use its bounds.
        """
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one duration to its bucket and to `sum_seconds`."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds

    def include(self, other: Durations) -> None:
        """Add all durations of `other`, which has the same bounds."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum_seconds += other.sum_seconds


class LabelledDurations:
    """Histograms of durations, one for each combination of label values.

    A histogram is created when the first duration with its label values is added.
    """

    __slots__ = ("_by_labels", "bounds")

    def __init__(self, bounds: tuple[float, ...] = DEFAULT_BOUNDS) -> None:
        """`bounds`: upper bounds of the buckets of all histograms."""
        self.bounds = bounds
        self._by_labels: dict[tuple[str, ...], Durations] = {}

    def add(self, seconds: float, *labels: str) -> None:
        """Add one duration to the histogram of these label values. `labels`: the values, always in the same order."""
        durations = self._by_labels.get(labels)
        if durations is None:
            durations = self._by_labels[labels] = Durations(self.bounds)
        durations.add(seconds)

    @property
    def counts(self) -> list[int]:
        """Number of values in each bucket, added up over all histograms."""
        return [
            sum(column) for column in zip(*(label.counts for label in self._by_labels.values()), strict=True)
        ]

    def items(self) -> Iterator[tuple[tuple[str, ...], Durations]]:
        """Yield the label values and the histogram of each combination, sorted by the label values."""
        yield from sorted(self._by_labels.items(), key=lambda item: item[0])


Samples = Iterable[tuple[tuple[Any, ...], float | Durations]]
"""Values of a metric, each with the values of its labels; a label value is any object whose text is the value."""
Source = Durations | LabelledDurations | Mapping[Any, float] | Callable[[], float | Samples]
"""Where a metric's values come from. Keys of a mapping are label values: one, or a tuple of several."""


class Metric(NamedTuple):
    """One metric of ``/metrics``. `kind`: counter, gauge or histogram. `text`: its help. `labels`: their names."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    source: Source

    def samples(self) -> Samples:
        """Return the present values."""
        if isinstance(self.source, Durations):
            return [((), self.source)]
        if isinstance(self.source, LabelledDurations):
            return self.source.items()
        if isinstance(self.source, Mapping):
            pairs = self.source.items()
            return [(key if isinstance(key, tuple) else (key,), value) for key, value in pairs]
        values = self.source()
        return [((), values)] if isinstance(values, int | float) else values


def counter(name: str, text: str, source: Source, *labels: str) -> Metric:
    """Make the metric of a number that only grows."""
    return Metric(name, "counter", text, labels, source)


def gauge(name: str, text: str, source: Source, *labels: str) -> Metric:
    """Make the metric of a number that grows and falls."""
    return Metric(name, "gauge", text, labels, source)


def histogram(name: str, text: str, source: Source, *labels: str) -> Metric:
    """Make the metric of durations or sizes."""
    return Metric(name, "histogram", text, labels, source)
