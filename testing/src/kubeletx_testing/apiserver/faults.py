"""Switches that make the API server misbehave.

They may be called from any thread; each takes effect at the next request. Rules are tried in the order of their
addition, and each counts the requests that it matched.
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
    """Fault for the next `times` requests whose method and path match.

    `path`: a part of the path, such as ``/leases/``; empty matches all. With `code` they are refused, with `drops` the
    connection is closed without an answer; `delay_seconds` comes before anything else. `retry_after_seconds`: for 429
    and 503.
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
        """Return True if it applies to this request."""
        if self.hits >= self.times or (is_watch and not self.watches):
            return False
        return (not self.methods or method in self.methods) and self.path in path


class DropConnection(Exception):
    """Close the connection without an answer."""


class Faults:
    """The active rules. `on_loop`: runs a function in the server's loop."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._thawed = asyncio.Event()
        self._thawed.set()

    def add(self, rule: Rule) -> Rule:
        """Add a rule; end it early with `remove`."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """End a rule before its times are used up."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()
        self.thaw()

    def fail(self, code: int, times: int = 1, path: str = "", retry_after_seconds: int = 0) -> Rule:
        """Refuse the next requests with 500, 503, 429 or another code."""
        return self.add(Rule(code=code, times=times, path=path, retry_after_seconds=retry_after_seconds))

    def drop(self, times: int = 1, path: str = "") -> Rule:
        """Close the connection of the next requests without an answer."""
        return self.add(Rule(drops=True, times=times, path=path))

    def delay(self, seconds: float, times: int = EVERY, path: str = "") -> Rule:
        """Answer the next requests later."""
        return self.add(Rule(delay_seconds=seconds, times=times, path=path))

    def freeze(self) -> None:
        """Accept connections and requests but answer nothing, watches included, until `thaw`."""
        self._on_loop(self._thawed.clear)

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self._on_loop(self._thawed.set)

    async def pass_frozen(self) -> None:
        """Wait while the server is frozen. Called by the server itself."""
        await self._thawed.wait()

    async def meet(self, method: str, path: str, is_watch: bool) -> None:
        """Apply the matching rule to a request. Raises StatusError or DropConnection. Called by the server itself."""
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
    return StatusError(rule.code, "", "a fault was asked for")
