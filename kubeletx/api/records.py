"""`Records`: store of small JSON objects of one kind, each with a version for optimistic concurrency control.

It is for facts that must survive a restart and that several writers may change, such as attachments of volumes. Two
implementations pass the same contract suite (`kubeletx.testing.contract`): the node's state database, and custom
resources of a cluster.

A writer reads a record, and writes it with the version that it has read. If another writer has changed the record
meanwhile, it gets Conflict; it then reads the record again and decides again. Of concurrent writers exactly one
succeeds.
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
"""Maximum size of a value as JSON text. An API server accepts about 1.5 MiB for a whole object."""
PAGE_RECORDS: Final = 500

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LARGEST: Final = 2**63 - 1
_DEEPEST: Final = 32


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it was read. `value`: a JSON object.

    `version`: opaque text that changes with each write; pass it to `Records.replace` and `Records.delete`.
    """

    name: str
    version: str
    value: dict[str, Any]

    def as_type(self, type_: type[T]) -> T:
        """Convert `value` to a msgspec Struct of type `type_`. Raises msgspec.ValidationError if it does not match."""
        return msgspec.convert(self.value, type_)


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of `Records.list_page`, ordered by name. `next_token`: token of the next page; empty on the last."""

    records: tuple[Record, ...]
    next_token: str = ""


class RecordPut(msgspec.Struct, frozen=True, tag=True):
    """Event of `Records.watch`: the record exists, with this version and value."""

    record: Record


class RecordGone(msgspec.Struct, frozen=True, tag=True):
    """Event of `Records.watch`: the record with this name was deleted."""

    name: str


class RecordsSynced(msgspec.Struct, frozen=True, tag=True):
    """Event of `Records.watch`: all records that existed when the watch began have been yielded."""


RecordEvent = RecordPut | RecordGone | RecordsSynced


class Records(Protocol):
    """Store of small JSON objects of one kind, each with a name and a version.

    Names are DNS subdomains (RFC 1123) of at most 253 characters. Values are JSON objects of at most
    `MAX_VALUE_BYTES`. They contain strings, finite numbers, 64-bit integers, booleans, lists and objects, but
    not None: leave such a field out. Every method may raise InvalidConfig for an invalid name or value,
    Unavailable if the store does not answer, TimedOut if it is unknown whether a write was done, and
    PermissionDenied.
    """

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        """Write a new record and return it with its version. Raises AlreadyExists if the name is taken."""
        ...

    async def get(self, name: str) -> Record:
        """Return the record with this name. Raises NotFound."""
        ...

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        """Return one page of at most `limit` records.

        `token`: empty for the first page, then `RecordPage.next_token` of the page before. A record that exists
        during the whole listing is in exactly one page. Raises Conflict if the token is too old: start with
        the first page again.
        """
        ...

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        """Replace the record's value if it has the expected version, and return the new record.

        Raises NotFound, or Conflict if the record has another version. If `value` equals the current value,
        nothing changes, not even the version.
        """
        ...

    async def delete(self, name: str, *, expected_version: str) -> None:
        """Delete the record if it has the expected version. Raises NotFound, or Conflict if it has another version."""
        ...

    def watch(self) -> AsyncGenerator[RecordEvent, None]:
        """Yield a RecordPut for each existing record, then RecordsSynced, then changes as they happen, forever.

        Intermediate states may be left out, but the last event for a name shows its current state. If it
        raises Unavailable, start a new watch. Use it with `contextlib.aclosing`, so that the watch ends when
        the loop is left.
        """
        ...


RecordKinds = Callable[[str], Records]
"""Function that returns the `Records` of a kind. A kind's name has the same syntax as the name of a record."""


def check_record_name(name: str, what: str = "record") -> None:
    """Raise InvalidConfig if `name` is not a valid name of a record. `what`: word for the object in the message."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name):
        return
    raise InvalidConfig(
        obj=what,
        field="name",
        problem=f"{name!r} is not a DNS subdomain",
        fix="use lower-case letters, digits, '-' and '.', at most 253 characters",
    )


def record_json(name: str, value: Mapping[str, Any]) -> bytes:
    """Encode `value` as JSON. Raises InvalidConfig for an invalid value, or an invalid `name` of its record."""
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
