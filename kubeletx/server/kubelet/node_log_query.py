"""Parses queries for the node's logs: of services in the systemd journal, or of one file. Pure.

    query=NAME                                   a service, at most four times; or one file, if NAME has a slash
    sinceTime untilTime tailLines boot pattern   options, for services in the journal only

Source: kubelet, pkg/kubelet/kubelet_server_journal.go; KEP 2258.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

MOST_SERVICES: Final = 4
MOST_LINES: Final = 100_000
_SERVICE: Final = re.compile(r"[a-zA-Z0-9@_.:-]{1,256}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_OPTIONS: Final = ("sinceTime", "untilTime", "tailLines", "boot", "pattern")


class UnreadableQuery(ValueError):
    """Raised for a value with invalid syntax; answered with 400."""


class ImpossibleQuery(ValueError):
    """Raised for values that contradict each other or are out of range; answered with 406."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query for the logs of either `services` or `file`.

    `lines`: number of last lines. `boot`: 0 is the present boot, -1 the one before; None: all. `pattern`: regular
    expression of journalctl; empty: every line. `since`, `until`, `lines` None: no limit.
    """

    services: tuple[str, ...] = ()
    file: str = ""
    since: datetime | None = None
    until: datetime | None = None
    lines: int | None = None
    boot: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        """True if the query has an option that only the journal supports, such as `since` or `pattern`."""
        return msgspec.structs.replace(self, services=(), file="") != LogQuery()


def parse_query(pairs: Iterable[tuple[str, str]]) -> LogQuery | None:
    """Parse the names and values of a URL's query; None if it has none of the parameters of a log query.

    Raises UnreadableQuery and ImpossibleQuery.
    """
    known = [(name, value) for name, value in pairs if name == "query" or name in _OPTIONS]
    asked = [value for name, value in known if name == "query"]
    options: dict[str, str] = {}
    for name, value in known:
        if name != "query" and value:
            options.setdefault(name, value)
    files = [value for value in asked if "/" in value or "\\" in value]
    services = tuple(value for value in asked if value not in files and value.strip())
    if asked and not files and not services:
        raise UnreadableQuery("query: cannot be empty")
    query = LogQuery(
        services=services,
        file=files[0].replace("\\", "/") if files else "",
        since=_time("sinceTime", options),
        until=_time("untilTime", options),
        lines=_number("tailLines", options),
        boot=_number("boot", options),
        pattern=options.get("pattern", ""),
    )
    if query == LogQuery():
        return None
    _check(query, files)
    return query


def journal_arguments(query: LogQuery) -> list[str]:
    """Return the arguments of journalctl for the query.

    Each value of the client follows an option and ``=``, so that journalctl cannot parse it as an option.
    """
    arguments = ["--utc", "--no-pager", "--output=short-precise"]
    if query.since is not None:
        arguments.append(f"--since=@{query.since.timestamp():.6f}")
    if query.until is not None:
        arguments.append(f"--until=@{query.until.timestamp():.6f}")
    if query.lines is not None:
        arguments += ["--pager-end", f"--lines={query.lines}"]
    arguments += [f"--unit={service}" for service in query.services]
    if query.pattern:
        arguments.append(f"--grep={query.pattern}")
    if query.boot is not None:
        arguments.append(f"--boot={query.boot}")
    return arguments


def is_in_journal(service: str, units: Sequence[str]) -> bool:
    """Return True if `service`, with or without the ending ``.service``, is one of the journal's `units`."""
    return service in units or f"{service}.service" in units


def likely_files(service: str) -> tuple[str, ...]:
    """Return possible log files, relative to /var/log, of a service that does not write to the journal."""
    return service, f"{service}.log", f"{service}/{service}.log"


def _check(query: LogQuery, files: Sequence[str]) -> None:
    problems = (
        (bool(query.file and query.services), "query: names a file and a service"),
        (len(files) > 1, "query: names more than one file"),
        (bool(query.file and query.has_options), "query: a file takes no options"),
        (not query.file and not query.services, "query: is required with the options"),
        (len(query.services) > MOST_SERVICES, f"query: names more than {MOST_SERVICES} services"),
        (
            not all(_SERVICE.fullmatch(service) for service in query.services),
            "query: is not the name of a service",
        ),
        (
            query.since is not None and query.until is not None and query.since > query.until,
            "untilTime: must be after sinceTime",
        ),
        (query.boot is not None and query.boot > 0, "boot: must be less than 1"),
        (
            query.lines is not None and not 0 <= query.lines <= MOST_LINES,
            f"tailLines: is not 0 to {MOST_LINES}",
        ),
        ("\0" in query.pattern, "pattern: is not text"),
    )
    for is_so, problem in problems:
        if is_so:
            raise ImpossibleQuery(problem)


def _number(name: str, options: dict[str, str]) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise UnreadableQuery(f"{name}: is not a number")
    return int(text)


def _time(name: str, options: dict[str, str]) -> datetime | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        if not _TIME.fullmatch(text):
            raise ValueError(text)
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise UnreadableQuery(f"{name}: is not a time such as 2026-01-02T03:04:05Z") from error
