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
    """One record as it was read.

    `version`: opaque text, to compare for equality and to give to `replace` and `delete`.
    """

    name: str
    version: str
    value: dict[str, Any]

    def as_type(self, type_: type[T]) -> T:
        """Convert the value to a Struct. Raises msgspec.ValidationError."""
        return msgspec.convert(self.value, type_)


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, ordered by name. `next_token`: token of the next page; empty on the last one."""

    records: tuple[Record, ...]
    next_token: str = ""


class RecordPut(msgspec.Struct, frozen=True):
    """Event of a watch: the record exists, with this version and value."""

    record: Record


class RecordGone(msgspec.Struct, frozen=True):
    """Event of a watch: the record of this name does not exist any more."""

    name: str


class RecordsSynced(msgspec.Struct, frozen=True):
    """Event of a watch: all records that existed when the watch began have been reported."""


RecordEvent = RecordPut | RecordGone | RecordsSynced


class Records(Protocol):
    """Store of small JSON objects of one kind, each with a name and a version.

    Names are DNS subdomains (RFC 1123) of at most 253 characters. Values are JSON objects of at most
    `MAX_VALUE_BYTES`: texts, finite numbers, integers of 64 bits, booleans, lists and objects. None is not
    allowed in a value: leave the field out. Every method may raise InvalidConfig for an invalid name or
    value, Unavailable when the store does not answer, TimedOut when it is unknown whether a write was done,
    and PermissionDenied.
    """

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        """Write a new record. Raises AlreadyExists if the name is taken."""
        ...

    async def get(self, name: str) -> Record:
        """Read the record. Raises NotFound."""
        ...

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        """Return the page of at most `limit` records that `token` leads to; an empty token: the first page.

        A record that exists all the time is in exactly one page. Raises Conflict for a token that is too old;
        start with the first page again.
        """
        ...

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        """Replace the value if the record has the expected version; returns the record as it is now.

        Raises NotFound, or Conflict if it has another version. A value that equals the present one changes
        nothing, not even the version.
        """
        ...

    async def delete(self, name: str, *, expected_version: str) -> None:
        """Delete the record if it has the expected version. Raises NotFound, or Conflict if it has another version."""
        ...

    def watch(self) -> AsyncGenerator[RecordEvent, None]:
        """Yield a RecordPut for each existing record, then RecordsSynced, then changes, without end.

        Intermediate states may be left out; the last event of a name is its present state. May raise
        Unavailable: then start a new watch. Use it with `contextlib.aclosing`, so that the watch ends when
        the loop is left.
        """
        ...


RecordKinds = Callable[[str], Records]
"""Kind → its records. Kinds have the same syntax as names of records."""


def check_record_name(name: str, what: str = "record") -> None:
    """Raise InvalidConfig if the name of a record is invalid. `what`: word for the record in the message."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name):
        return
    raise InvalidConfig(
        obj=what,
        field="name",
        problem=f"{name!r} is no DNS subdomain",
        fix="use lower-case letters, digits, '-' and '.', at most 253 characters",
    )


def record_json(name: str, value: Mapping[str, Any]) -> bytes:
    """Encode a value as JSON. Raises InvalidConfig for an invalid name or value."""
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
