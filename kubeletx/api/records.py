"""`Records`: small JSON objects of one kind, with versions that detect concurrent writers.

For facts that a program stores and finds again after a restart, and that several writers share: attachments of volumes,
fences of nodes, verdicts. Two implementations pass the same contract suite (`kubeletx.testing.contract`): the node's
own database, and custom resources of a cluster.

A writer reads a record, decides, and writes with the version that it read. If another writer came first it gets
Conflict, reads again and decides again. Of concurrent writers exactly one succeeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from .errors import InvalidConfig

T = TypeVar("T")

MAX_NAME_CHARS: Final = 253
MAX_VALUE_BYTES: Final = 256 * 1024
"""Upper bound for the JSON text of a value. An API server takes about 1.5 MiB for a whole object."""
PAGE_RECORDS: Final = 500

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LARGEST: Final = 2**63 - 1
_DEEPEST: Final = 32


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it was read. `version`: opaque; compared for equality only, and given to `replace` and `delete`."""

    name: str
    version: str
    value: dict[str, Any]

    def as_type(self, type_: type[T]) -> T:
        """The value as a Struct. Raises msgspec.ValidationError."""
        return msgspec.convert(self.value, type_)


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list, in order of names. `next_token`: for the next page; empty: there is none."""

    records: tuple[Record, ...]
    next_token: str = ""


class RecordPut(msgspec.Struct, frozen=True):
    """The record exists in this form."""

    record: Record


class RecordGone(msgspec.Struct, frozen=True):
    """The record of this name does not exist any more."""

    name: str


class RecordsSynced(msgspec.Struct, frozen=True):
    """Everything that existed when the watch began has been reported."""


RecordEvent = RecordPut | RecordGone | RecordsSynced


class Records(Protocol):
    """The records of one kind.

    Names are DNS subdomains (RFC 1123) of at most 253 characters. Values are JSON objects of at most `MAX_VALUE_BYTES`:
    texts, finite numbers, integers of 64 bits, booleans, lists and objects. None is not allowed in a value: leave the
    field out. Every method raises InvalidConfig for other names and values, Unavailable when the store does not answer,
    TimedOut when it is unknown whether a write was done, and PermissionDenied.
    """

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        """Write a new record. Raises AlreadyExists if there is one of this name."""
        ...

    async def get(self, name: str) -> Record:
        """The record as it is now. Raises NotFound."""
        ...

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        """At most `limit` records from `token` on; an empty token: from the first.

        A record that exists all the time is in exactly one page. Raises Conflict for a token that is too old: begin
        again.
        """
        ...

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        """Write another value. Raises NotFound, or Conflict if the record has another version than `expected_version`.

        A value that equals the present one changes nothing, the version included.
        """
        ...

    async def delete(self, name: str, *, expected_version: str) -> None:
        """Delete the record. Raises NotFound, or Conflict if it has another version than `expected_version`."""
        ...

    def watch(self) -> AsyncGenerator[RecordEvent, None]:
        """Yield a RecordPut for each existing record, RecordsSynced, then changes; never ends by itself.

        Intermediate states may be left out: the last event of a name is its present state. May raise Unavailable; then
        watch again. Use it with `contextlib.aclosing`, so that leaving the loop ends it.
        """
        ...


RecordKinds = Callable[[str], Records]
"""Kind → its records. Kinds have the same syntax as names of records."""


def check_record_name(name: str, what: str = "record") -> None:
    """Raise InvalidConfig for an invalid name of a record."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name):
        return
    raise InvalidConfig(
        obj=what,
        field="name",
        problem=f"{name!r} is no DNS subdomain",
        fix="use lower-case letters, digits, '-' and '.', at most 253 characters",
    )


def record_json(name: str, value: Mapping[str, Any]) -> bytes:
    """The JSON text of a value. Raises InvalidConfig for an invalid name or value."""
    check_record_name(name)
    if not isinstance(value, Mapping):
        raise _bad(name, "", f"is {type(value).__name__}", "give an object")
    _check(name, value, "", 0)
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise _bad(name, "", "holds text that is not Unicode", "remove lone surrogates") from error
    if len(text) > MAX_VALUE_BYTES:
        problem = f"has {len(text)} bytes"
        raise _bad(name, "", problem, f"keep it below {MAX_VALUE_BYTES} bytes")
    return text


def _check(name: str, value: Any, path: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise _bad(name, path, f"is nested more than {_DEEPEST} times", "flatten it")
    match value:
        case str() | bool():
            return
        case int() if -_LARGEST - 1 <= value <= _LARGEST:
            return
        case float() if math.isfinite(value):
            return
        case list() | tuple():
            for index, part in enumerate(value):
                _check(name, part, f"{path}[{index}]", depth + 1)
        case Mapping():
            for field, part in value.items():
                if not isinstance(field, str):
                    raise _bad(name, path, f"has the key {field!r}", "use texts as keys")
                _check(name, part, f"{path}.{field}", depth + 1)
        case None:
            raise _bad(name, path, "is None", "leave the field out")
        case _:
            raise _bad(
                name, path, f"is {value!r:.80}", "use JSON values: integers of 64 bits, finite numbers"
            )


def _bad(name: str, path: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=f"record {name}", field=f"value{path}", problem=problem, fix=fix)
