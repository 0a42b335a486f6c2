"""Log of received requests, for tests that count them."""

from __future__ import annotations

import threading
import time

import msgspec


class RequestRecord(msgspec.Struct, kw_only=True):
    """One request. `at_seconds` is monotonic time; `code` is 0 until it is answered, and for dropped ones."""

    at_seconds: float
    method: str
    path: str
    query: dict[str, str]
    user_agent: str
    user: str = ""
    verb: str = ""
    code: int = 0


class RequestLog:
    """Requests in order of arrival. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[RequestRecord] = []

    def note(self, method: str, path: str, query: dict[str, str], user_agent: str) -> RequestRecord:
        """Add a request; the server completes the record when it answers."""
        record = RequestRecord(
            at_seconds=time.monotonic(), method=method, path=path, query=query, user_agent=user_agent
        )
        with self._lock:
            self._records.append(record)
        return record

    def clear(self) -> None:
        """Drop all records, to count from now."""
        with self._lock:
            self._records.clear()

    def all(self, user: str = "", path: str = "", verb: str = "", method: str = "") -> list[RequestRecord]:
        """Requests of a user, with a part of the path, of a verb (``list``), of a method; empty takes all."""
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
