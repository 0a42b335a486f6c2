"""Faults of the API server double that a test switches on and off: delays, errors, lost connections.

The methods may be called from any thread and take effect at the next request. Rules are applied in the order
in which they were added, and each counts the requests that it matched.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from .errors import StatusError, internal, too_many_requests

EVERY: Final = 10**9
_UNAVAILABLE: Final = 503


class Rule(msgspec.Struct, kw_only=True):
    """A fault for the next `times` requests whose method and path match.

    Which requests match: `methods`: HTTP methods; empty: all. `path`: a substring of the path, such as
    ``/leases/``; empty: all paths. `watches`: False excludes watches. What happens to a matching request, in
    this order: `delay_seconds`: wait. `drops`: close the connection without an answer. `code`: refuse with
    this HTTP status; 0: serve the request. `retry_after_seconds`: value of the Retry-After header with 429
    and 503. `hits`: number of matched requests so far.
    """

    times: int = EVERY
    methods: tuple[str, ...] = ()
    path: str = ""
    code: int = 0
    retry_after_seconds: int = 0
    drops: bool = False
    delay_seconds: float = 0.0
    watches: bool = True
    hits: int = 0

    def takes(self, method: str, path: str, is_watch: bool) -> bool:
        """Return True if this request matches the rule and the rule has not been used up."""
        if self.hits >= self.times or (is_watch and not self.watches):
            return False
        return (not self.methods or method in self.methods) and self.path in path


class DropConnection(Exception):
    """Raised to close the connection of a request without an answer."""


class Faults:
    """The active faults of one server.

    `on_loop`: function that runs another function in the server's event loop.
    """

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._thawed = asyncio.Event()
        self._thawed.set()

    def add(self, rule: Rule) -> Rule:
        """Add a rule and return it. `remove` ends it before its `times` are used up."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """End a rule that `add` has returned."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules, and end `freeze`."""
        with self._lock:
            self._rules.clear()
        self.thaw()

    def fail(self, code: int, times: int = 1, path: str = "", retry_after_seconds: int = 0) -> Rule:
        """Refuse the next `times` requests with this HTTP status, such as 429, 500 or 503.

        `path`: only requests with this substring in their path; empty: all requests. `retry_after_seconds`:
        value of the Retry-After header.
        """
        return self.add(Rule(code=code, times=times, path=path, retry_after_seconds=retry_after_seconds))

    def drop(self, times: int = 1, path: str = "") -> Rule:
        """Close the connections of the next `times` requests without an answer.

        `path`: only requests with this substring in their path; empty: all requests.
        """
        return self.add(Rule(drops=True, times=times, path=path))

    def delay(self, seconds: float, times: int = EVERY, path: str = "") -> Rule:
        """Serve the next `times` requests after a delay.

        `path`: only requests with this substring in their path; empty: all requests.
        """
        return self.add(Rule(delay_seconds=seconds, times=times, path=path))

    def freeze(self) -> None:
        """Accept connections and requests but answer none until `thaw`. Open watches get no events."""
        self._on_loop(self._thawed.clear)

    def thaw(self) -> None:
        """End `freeze`; the waiting requests are answered and watches continue."""
        self._on_loop(self._thawed.set)

    async def pass_frozen(self) -> None:
        """Wait while the server is frozen. Called by the server itself."""
        await self._thawed.wait()

    async def meet(self, method: str, path: str, is_watch: bool) -> None:
        """Apply the rules that match a request, which may wait. Called by the server itself.

        Raises StatusError or DropConnection if a rule refuses or drops the request.
        """
        with self._lock:
            rules = [rule for rule in self._rules if rule.takes(method, path, is_watch)]
            for rule in rules:
                rule.hits += 1
        for rule in rules:
            if rule.delay_seconds:
                await asyncio.sleep(rule.delay_seconds)
            if rule.drops:
                raise DropConnection
            if rule.code:
                raise _refusal(rule)


def _refusal(rule: Rule) -> StatusError:
    if rule.code == 429:
        return too_many_requests("too many requests, please try again later", rule.retry_after_seconds or 1)
    if rule.code == _UNAVAILABLE:
        headers = {"Retry-After": str(rule.retry_after_seconds)} if rule.retry_after_seconds else {}
        message = "the server is currently unable to handle the request"
        return StatusError(503, "ServiceUnavailable", message, {}, headers)
    if rule.code == 500:
        return internal("a fault was asked for")
    reason = {401: "Unauthorized", 403: "Forbidden"}.get(rule.code, "")
    return StatusError(rule.code, reason, "a fault was asked for")
