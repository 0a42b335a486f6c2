"""Counts of requests to the kubelet's API and the read-only port.

Unknown methods, and paths without a route, count as "other": clients can send any text, and a series for each text
would need unlimited memory. Source: kubelet, pkg/kubelet/server/metrics, server.go.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.typedefs import Middleware

from kubeletx.api.counting import LabelledDurations, Metric, counter, gauge, histogram

OTHER = "other"
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"})
LONG_RUNNING = frozenset({"exec", "attach", "portforward", "debug"})
_LABELS = ("method", "path", "server_type", "long_running")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpCounts:
    """Counts of requests since the agent started, by method, path, server type and whether the path is long-running."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.inflight: Counter[tuple[str, ...]] = Counter()
        self.durations = LabelledDurations()

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of these counts."""
        where, labels = "requests to the kubelet API and the read-only port", _LABELS
        yield counter("kubelet_http_requests_total", f"Number of {where}.", self.requests, *labels)
        yield histogram(
            "kubelet_http_requests_duration_seconds", f"Duration of {where}.", self.durations, *labels
        )
        yield gauge(
            "kubelet_http_inflight_requests", "Number of such requests in progress.", self.inflight, *labels
        )

    @contextmanager
    def counted(self, method: str, path: str, server_type: str) -> Iterator[None]:
        """Context manager that counts one request and its duration.

        `path`: from `first_part`. `server_type`: label of the kubelet's metric, readwrite or readonly.
        """
        labels = (method, path, server_type, str(path.lower() in LONG_RUNNING).lower())
        self.requests[labels] += 1
        self.inflight[labels] += 1
        began = time.perf_counter()
        try:
            yield
        finally:
            self.inflight[labels] -= 1
            self.durations.add(time.perf_counter() - began, *labels)


def first_part(path: str) -> str:
    """Return the first segment of a URL path; below ``/metrics`` the first two, such as ``metrics/cadvisor``."""
    parts = path.lstrip("/").split("/", 2)
    return "/".join(parts[:2]) if parts[0] == "metrics" else parts[0]


def counting(counts: HttpCounts, server_type: str, paths: Iterable[str]) -> Middleware:
    """Make a middleware that counts every request in `counts`, including refused ones.

    `server_type`: as in `HttpCounts.counted`. `paths`: paths of all routes of the server.
    """
    known = {first_part(path) for path in paths}

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = first_part(request.path)
        method = request.method if request.method in METHODS else OTHER
        with counts.counted(method, path if path in known else OTHER, server_type):
            return await handler(request)

    return count
