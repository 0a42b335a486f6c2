"""Counts, durations and sizes of requests to API servers, as in client-go's metrics. All clients share one object.

Source: component-base, metrics/prometheus/restclient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kubeletx.api.counting import LabelledDurations, Metric, counter, histogram

LATENCY: tuple[float, ...] = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
SIZES: tuple[float, ...] = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
NO_ANSWER = "<error>"


class RequestCounts:
    """Numbers, durations and sizes of requests and their answers, by host and HTTP method."""

    __slots__ = ("answers", "durations", "request_sizes", "response_sizes", "throttled")

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, str]] = Counter()
        """Number of requests by (status code, host, method). The code is `NO_ANSWER` if there was no answer."""
        self.durations = LabelledDurations(LATENCY)
        """Seconds from sending a request to the head of its answer."""
        self.throttled = LabelledDurations(LATENCY)
        """Seconds that requests waited for the client's own rate limit."""
        self.request_sizes = LabelledDurations(SIZES)
        self.response_sizes = LabelledDurations(SIZES)
        """Sizes in bytes of the bodies of all answers but watches."""

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of these counts."""
        yield counter(
            "rest_client_requests_total",
            "Number of requests to the API server.",
            self.answers,
            "code",
            "host",
            "method",
        )
        for name, text, durations in (
            (
                "request_duration_seconds",
                "Time until the answer to a request to the API server begins.",
                self.durations,
            ),
            (
                "rate_limiter_duration_seconds",
                "Time that a request waits for the client's own rate limit.",
                self.throttled,
            ),
            ("request_size_bytes", "Size of the body of a request to the API server.", self.request_sizes),
            ("response_size_bytes", "Size of the body of an answer, except watches.", self.response_sizes),
        ):
            yield histogram(f"rest_client_{name}", text, durations, "host", "verb")

    def answered(self, host: str, method: str, code: str, seconds: float) -> None:
        """Count one request. `code`: HTTP status, or `NO_ANSWER`.

        `seconds`: time from sending the request to the head of its answer, or to its failure.
        """
        self.answers[code, host, method] += 1
        self.durations.add(seconds, host, method)
