"""Log of the requests that the API server double received, for tests that count requests."""

from __future__ import annotations

import threading
import time

import msgspec


class RequestRecord(msgspec.Struct, kw_only=True):
    """One received request.

    `at_seconds`: monotonic time of its arrival. `user`, `verb`: set once the request is authenticated and
    parsed. `code`: HTTP status of the answer; 0 before the answer, and if the connection was dropped without
    one.
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
    """The requests that the API server double received, in order of arrival. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[RequestRecord] = []

    def note(self, method: str, path: str, query: dict[str, str], user_agent: str) -> RequestRecord:
        """Add a request and return its record; the server sets user, verb and code in it later."""
        record = RequestRecord(
            at_seconds=time.monotonic(), method=method, path=path, query=query, user_agent=user_agent
        )
        with self._lock:
            self._records.append(record)
        return record

    def clear(self) -> None:
        """Remove all records, so that a test counts only later requests."""
        with self._lock:
            self._records.clear()

    def all(self, user: str = "", path: str = "", verb: str = "", method: str = "") -> list[RequestRecord]:
        """Return the requests that match all arguments; an empty argument matches every request.

        `path`: a substring of the path. `verb`: the Kubernetes verb, such as ``list``. `method`: the HTTP
        method.
        """
        with self._lock:
            records = list(self._records)
        return [
            record
            for record in records
            if (not user or record.user == user)
            and path in record.path
            and (not verb or record.verb == verb)
            and (not method or record.method == method)
        ]
