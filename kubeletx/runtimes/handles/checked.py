"""Rules for what the methods of a runtime return, checked once for each call. Pure.

What a plugin returns becomes part of the agent's snapshots, paths and API objects, so its type and identity are checked
before anything uses it:

    answer of the wrong type, status of another id, bad id, list that is too long      the call fails
    entry of a list with a wrong type or bad id, and the second entry of one id        the entry is left out
    text for users, such as a message, that is longer than `LONGEST_TEXT`              the text is cut
    time more than `AHEAD_NS` ahead of this node's clock, or negative                  the present time, or 0, is used

A wrong time does not remove an object: the clock of a node or of a remote runtime may jump, and a pod that vanishes
from a list is started a second time. An entry that is left out and a corrected time are returned as notes, which the
caller logs. A *bad id* is not a string, is empty, is longer than `LONGEST_ID`, or has a NUL, a slash or a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubeletx.api import (
    EventKind,
    ExecResult,
    ImageStatus,
    NicStatus,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    Session,
    SnapshotStatus,
    StoreInfo,
    StreamUrl,
    Traits,
    UnitState,
    UnitStats,
    UnitStatus,
    UnitSummary,
)

from ..plugins.failures import LONGEST_TEXT, shortened
from .shapes import describe, have_shape, wrong_field

LONGEST_ID: Final = 256
LARGEST_LIST: Final = 50_000
"""Maximum number of entries of a list; far above what a node runs, and too few to exhaust its memory."""
MOST_CONDITIONS: Final = 64
"""Conditions of a runtime that are kept; the contract has two."""
AHEAD_NS: Final = 3600 * 10**9
"""Time by which the clock of a runtime may be ahead of this node's."""

Check = Callable[[Any, str | None, int, list[str]], Any]
"""Rule for one method: (result, id that was passed to the method or None, present time in ns, notes) → result."""

_ID = re.compile(rf"[^\0/\n]{{1,{LONGEST_ID}}}")
_UNIT_TIMES = ("started_at_ns", "finished_at_ns", "since_ns")


class BrokenAnswer(Exception):
    """Raised for an answer that is not used; the message completes "METHOD ..."."""


def is_good_id(value: Any) -> bool:
    """Return True if the value can be the id of a sandbox, unit or pod."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def wrong_event(event: Any) -> str:
    """Return what is wrong with an item of an event stream; empty if nothing is."""
    if type(event) is not RuntimeEvent:
        return f"yielded {describe(event)}; must be RuntimeEvent"
    if type(event.kind) is not EventKind:
        return f"yielded an event with kind {describe(event.kind)}; must be EventKind"
    for name, value in (("uid", event.uid), ("sandbox_id", event.sandbox_id), ("unit_id", event.unit_id)):
        if value is not None and not is_good_id(value):
            return f"yielded an event with {name} {describe(value)}; {_ID_RULE}"
    return ""


def wrong_output(item: Any) -> str:
    """Return what is wrong with an item of a log stream; empty if nothing is."""
    if isinstance(item, tuple) and len(item) == 2 and item[0] in ("stdout", "stderr"):
        if isinstance(item[1], bytes):
            return ""
        return f"yielded {item[0]} with {describe(item[1])}; must be bytes"
    return f'yielded {describe(item)}; must be a pair of "stdout" or "stderr" and bytes'


# --- private ---

_ID_RULE = f"must be a string of 1 to {LONGEST_ID} characters without NUL, slash and line feed"


def _made_id(result: Any, _asked: str | None, _now_ns: int, _notes: list[str]) -> Any:
    if not is_good_id(result):
        raise BrokenAnswer(f"returned the id {describe(result)}; {_ID_RULE}")
    return result


def _unit_status(result: Any, asked: str | None, now_ns: int, notes: list[str]) -> Any:
    _expect(result, UnitStatus)
    summary = result.summary
    _expect_summary(summary, UnitSummary, asked)
    if not _fits_quickly(result, summary):
        _refuse_wrong_fields(result)
    result = _with_short_texts(result, "reason", "message")
    latest = max(result.started_at_ns, result.finished_at_ns, result.since_ns, summary.created_at_ns)
    least = min(result.started_at_ns, result.finished_at_ns, result.since_ns, summary.created_at_ns)
    if latest <= now_ns + AHEAD_NS and least >= 0:
        return result
    result = _with_possible_times(result, _UNIT_TIMES, now_ns, notes, summary.id)
    return replace(
        result, summary=_with_possible_times(summary, ("created_at_ns",), now_ns, notes, summary.id)
    )


def _sandbox_status(result: Any, asked: str | None, now_ns: int, notes: list[str]) -> Any:
    _expect(result, SandboxStatus)
    summary = result.summary
    _expect_summary(summary, SandboxSummary, asked)
    if not _sandbox_fits_quickly(result, summary):
        _refuse_wrong_fields(result)
    if 0 <= summary.created_at_ns <= now_ns + AHEAD_NS:
        return result
    return replace(
        result, summary=_with_possible_times(summary, ("created_at_ns",), now_ns, notes, summary.id)
    )


def _with_short_texts(value: Any, *fields: str) -> Any:
    """Return the value with these texts cut: users read them, so that their begin is enough."""
    for name in fields:
        if len(text := getattr(value, name)) > LONGEST_TEXT:
            value = replace(value, **{name: shortened(text)})
    return value


def _version(result: Any, asked: str | None, now_ns: int, notes: list[str]) -> Any:
    return _with_short_texts(
        _one(RuntimeVersion)(result, asked, now_ns, notes), "name", "version", "api_version"
    )


def _health(result: Any, asked: str | None, now_ns: int, notes: list[str]) -> Any:
    health = _one(RuntimeHealth)(result, asked, now_ns, notes)
    texts = ("type", "reason", "message")
    conditions = tuple(
        _with_short_texts(condition, *texts) for condition in health.conditions[:MOST_CONDITIONS]
    )
    return health if conditions == health.conditions else replace(health, conditions=conditions)


def _fits_quickly(status: UnitStatus, summary: UnitSummary) -> bool:
    """Return True if the fields of a usual status have the right types; False if a closer look is necessary."""
    labels, annotations = summary.labels, summary.annotations
    try:
        "".join((summary.sandbox_id, summary.uid, summary.name, summary.image, summary.image_id))
        "".join((status.reason, status.message, status.log_path, status.image_ref, *status.info))
        "".join((*labels, *labels.values(), *annotations, *annotations.values(), *status.info.values()))
        "".join(status.resources)
        amounts = set(map(type, status.resources.values()))
    except (TypeError, AttributeError):
        return False
    numbers = amounts | {type(status.started_at_ns), type(status.finished_at_ns), type(status.since_ns)}
    numbers |= {type(summary.created_at_ns), type(summary.attempt), type(status.restarts)}
    return (
        numbers == {int}
        and type(summary.state) is UnitState
        and (status.exit_code is None or type(status.exit_code) is int)
    )


def _sandbox_fits_quickly(status: SandboxStatus, summary: SandboxSummary) -> bool:
    labels, annotations = summary.labels, summary.annotations
    try:
        "".join((summary.uid, summary.name, summary.namespace, summary.handler, *status.ips, *status.info))
        "".join((*labels, *labels.values(), *annotations, *annotations.values(), *status.info.values()))
    except (TypeError, AttributeError):
        return False
    return (
        type(status.ips) is tuple
        and type(summary.created_at_ns) is int
        and type(summary.attempt) is int
        and type(summary.state) is SandboxState
    )


def _list_of(cls: type, id_of: Callable[[Any], Any] | None = None, *, times: tuple[str, ...] = ()) -> Check:
    """Return the rule for lists of `cls`. `id_of`: returns the entry's id; None: entries have names, not ids."""

    def check(result: Any, _asked: str | None, now_ns: int, notes: list[str]) -> Any:
        if not isinstance(result, list | tuple) and (
            isinstance(result, str | bytes) or not isinstance(result, Sequence)
        ):
            raise BrokenAnswer(f"returned {describe(result)}; must be a list of {cls.__name__}")
        if len(result) > LARGEST_LIST:
            raise BrokenAnswer(f"returned {len(result)} entries; at most {LARGEST_LIST} are accepted")
        if not result:
            return result
        if not have_shape(cls, result) or (id_of is not None and not _are_good_ids(list(map(id_of, result)))):
            result = _usable(cls, result, id_of, notes)
        for name in times:
            moments = [getattr(entry, name) for entry in result]
            if moments and (max(moments) > now_ns + AHEAD_NS or min(moments) < 0):
                result = [
                    _with_possible_times(
                        entry, (name,), now_ns, notes, id_of(entry) if id_of is not None else ""
                    )
                    for entry in result
                ]
        return result

    return check


def _are_good_ids(ids: list[str]) -> bool:
    joined = "\n".join(ids)
    return (
        len(set(ids)) == len(ids)
        and joined.count("\n") == len(ids) - 1
        and "/" not in joined
        and "\0" not in joined
        and min(map(len, ids)) >= 1
        and max(map(len, ids)) <= LONGEST_ID
    )


def _usable(
    cls: type, entries: Sequence[Any], id_of: Callable[[Any], Any] | None, notes: list[str]
) -> list[Any]:
    """Return the entries that can be used, and add a note for each other one."""
    usable: list[Any] = []
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        problem = _wrong_entry(cls, entry, id_of, seen)
        if problem:
            notes.append(f"returned a list whose entry {number} is left out: {problem}")
        else:
            usable.append(entry)
    return usable


def _wrong_entry(cls: type, entry: Any, id_of: Callable[[Any], Any] | None, seen: set[str]) -> str:
    if not isinstance(entry, cls):
        return f"it is {describe(entry)}; must be {cls.__name__}"
    if id_of is not None:
        entry_id = id_of(entry)
        if not is_good_id(entry_id):
            return f"its id is {describe(entry_id)}; {_ID_RULE}"
        if entry_id in seen:
            return f"the list has id {entry_id!r} twice"
        seen.add(entry_id)
        problem = wrong_field(entry)
        return f"of {entry_id!r}, {problem}" if problem else ""
    return wrong_field(entry)


def _with_possible_times(
    value: Any, fields: tuple[str, ...], now_ns: int, notes: list[str], object_id: str
) -> Any:
    """Return the value with its times that cannot be true replaced, and add a note for each of them."""
    changes: dict[str, int] = {}
    for name in fields:
        moment = getattr(value, name)
        if moment > now_ns + AHEAD_NS:
            changes[name] = now_ns
            notes.append(
                f"returned {name} of {object_id!r} {(moment - now_ns) // 10**9} s ahead of this node's clock"
            )
        elif moment < 0:
            changes[name] = 0
            notes.append(f"returned {name} of {object_id!r} as {moment}; must not be negative")
    return replace(value, **changes) if changes else value


def _one(cls: type, *, or_none: bool = False) -> Check:
    """Return the rule for one value of `cls`. `or_none`: None is a valid answer too."""

    def check(result: Any, _asked: str | None, _now_ns: int, _notes: list[str]) -> Any:
        if result is None and or_none:
            return result
        _expect(result, cls, " or None" if or_none else "")
        _refuse_wrong_fields(result)
        return result

    return check


def _plain(cls: type) -> Check:
    def check(result: Any, _asked: str | None, _now_ns: int, _notes: list[str]) -> Any:
        _expect(result, cls)
        return result

    return check


def _streams(result: Any, _asked: str | None, _now_ns: int, _notes: list[str]) -> Any:
    if isinstance(result, StreamUrl):
        _refuse_wrong_fields(result)
    elif not isinstance(result, Session):
        raise BrokenAnswer(f"returned {describe(result)}; must be Session or StreamUrl")
    return result


def _expect(result: Any, cls: type, more: str = "") -> None:
    if not isinstance(result, cls):
        raise BrokenAnswer(f"returned {describe(result)}; must be {cls.__name__}{more}")


def _expect_summary(summary: Any, cls: type, asked: str | None) -> None:
    if not isinstance(summary, cls):
        raise BrokenAnswer(f"returned a status whose summary is {describe(summary)}; must be {cls.__name__}")
    id_ = summary.id  # type: ignore[attr-defined]
    if asked is not None and id_ != asked:
        raise BrokenAnswer(f"returned the status of {describe(id_)}; must be the status of {asked!r}")
    if not is_good_id(id_):
        raise BrokenAnswer(f"returned the id {describe(id_)}; {_ID_RULE}")


def _refuse_wrong_fields(result: Any) -> None:
    problem = wrong_field(result)
    if problem:
        raise BrokenAnswer(f"returned {type(result).__name__} whose {problem}")


def _id_of(entry: Any) -> Any:
    return entry.id


CHECKS: Final[Mapping[str, Check]] = {
    "traits": _one(Traits),
    "version": _version,
    "health": _health,
    "create_sandbox": _made_id,
    "create_unit": _made_id,
    "sandbox_status": _sandbox_status,
    "unit_status": _unit_status,
    "list_sandboxes": _list_of(SandboxSummary, _id_of, times=("created_at_ns",)),
    "list_units": _list_of(UnitSummary, _id_of, times=("created_at_ns",)),
    "list_unit_stats": _list_of(UnitStats, _id_of, times=("at_ns",)),
    "store_info": _one(StoreInfo),
    "list_images": _list_of(ImageStatus),
    "find_image": _one(ImageStatus, or_none=True),
    "pull_image": _plain(str),
    "exec_sync": _one(ExecResult),
    "exec": _streams,
    "attach": _streams,
    "port_forward": _streams,
    "create_snapshot": _one(SnapshotStatus),
    "list_snapshots": _list_of(SnapshotStatus),
    "list_nics": _list_of(NicStatus),
    "Session.wait": _plain(int),
    "screenshot": _plain(bytes),
    "definition": _plain(str),
}
"""The rule for each method; methods that return None are not checked."""
