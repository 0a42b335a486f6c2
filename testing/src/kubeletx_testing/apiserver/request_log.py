"""Log of the requests that a server received, for tests that count them."""

from __future__ import annotations

import threading
import time

import msgspec


class RequestRecord(msgspec.Struct, kw_only=True):
    """One received request. `at_seconds`: monotonic time of its arrival.

    `code`: status of the answer; 0 until then, and if it was dropped.
    """

    at_seconds: float
    method: str
    path: str
    query: dict[str, str]
    user_agent: str
    user: str = ""
    verb: str = ""
    code: int = 0


class RequestLog:
    """The requests that a server received, in order of arrival. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[RequestRecord] = []

    def note(self, method: str, path: str, query: dict[str, str], user_agent: str) -> RequestRecord:
        """Add a request and return its record, which the server completes when it answers."""
        record = RequestRecord(
            at_seconds=time.monotonic(), method=method, path=path, query=query, user_agent=user_agent
        )
        with self._lock:
            self._records.append(record)
        return record

    def clear(self) -> None:
        """Remove all records, so that a test counts from now."""
        with self._lock:
            self._records.clear()

    def all(self, user: str = "", path: str = "", verb: str = "", method: str = "") -> list[RequestRecord]:
        """Return the requests of this user, verb (such as ``list``) and method, with `path` in their path; an
        empty argument matches all.
        """
        with self._lock:
            records = list(self._records)
        return [
            one
            for one in records
            if (not user or one.user == user)
            and path in one.path
            and (not verb or one.verb == verb)
            and (not method or one.method == method)
        ]
