"""Reads the answer of a driver: the rules are pure functions over the output and the exit code.

    exit code   status           result
    0           Success          the reply
    any         Not supported    the reply; the caller uses its own way instead
    any         another          the driver failed, with its message
    not 0       Success          an error: status and exit code contradict each other
    any         no JSON object   an error that quotes the output

The output must be one JSON object. The kubelet takes standard output and standard error together, so that a line of
chatter fails the call. Here chatter is tolerated, with these limits:

- The object that counts is the last one of standard output, or of standard error if there is no standard output, and
  only white space follows it.
- It begins a line, and has a status.
- It is not a success if another object with a status, on either output, says something else, or if another line begins
  like an object and is none.
- Output that was cut is never a success.

Keys are compared without regard to case, as Go does; of equal keys the last one counts. Null leaves a field as it is.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubeletx.api.text import printable

MOST_QUOTED: Final = 400
_MOST_OBJECTS: Final = 64
_LIMIT: Final = 1 << 63
_WORDS: Final[dict[type, str]] = {str: "text", bool: "true or false", int: "a whole number"}
_FIELDS: Final = {
    "status": ("status", str),
    "message": ("message", str),
    "device": ("device", str),
    "volumename": ("volume_name", str),
    "attached": ("attached", bool),
    "volumenewsize": ("new_size_bytes", int),
}
_CAPABILITIES: Final = {
    "attach": "attach",
    "fsGroup": "fs_group",
    "selinuxRelabel": "selinux_relabel",
    "supportsMetrics": "supports_metrics",
    "requiresFSResize": "requires_fs_resize",
    "blockVolumes": "block_volumes",
}
_FOLDED_CAPABILITIES: Final = {word.lower(): field for word, field in _CAPABILITIES.items()}


class ReplyStatus(enum.Enum):
    """Status of a reply; compared exactly, as in the kubelet."""

    SUCCESS = "Success"
    NOT_SUPPORTED = "Not supported"
    FAILURE = "Failure"
    """Every other text."""


class DriverCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of a driver, from the reply of ``init``; the defaults are the kubelet's.

    `block_volumes`: not in the FlexVolume specification: a target below ``volumeDevices`` is made a block device.
    """

    attach: bool = True
    selinux_relabel: bool = True
    supports_metrics: bool = False
    fs_group: bool = True
    requires_fs_resize: bool = True
    block_volumes: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the capabilities that the driver has, as the protocol spells them."""
        return tuple(word for word, field in _CAPABILITIES.items() if getattr(self, field))


class DriverReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply of a driver to one call. `has_chatter`: the output had more than the JSON object."""

    status: ReplyStatus
    message: str = ""
    device: str = ""
    volume_name: str = ""
    attached: bool = False
    new_size_bytes: int = 0
    capabilities: DriverCapabilities = DriverCapabilities()
    has_chatter: bool = False


class BadReply(Exception):
    """Raised for output that is not a reply. The message is one clause.

    `output`: what the driver printed; it may contain secrets.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        super().__init__(problem)
        self.output = output


def read_reply(exit_code: int, stdout: bytes, stderr: bytes, *, is_cut: bool = False) -> DriverReply:
    """Return the reply that the output contains. Raises BadReply if there is none, or it contradicts itself.

    `is_cut`: the output was longer than was read.
    """
    out, err = _text(stdout), _text(stderr)
    try:
        return _read(exit_code, out, err, is_cut=is_cut)
    except BadReply as error:
        raise BadReply(f"exit code {exit_code}, and {error}", f"{out} {err}") from None


def _read(exit_code: int, out: str, err: str, *, is_cut: bool) -> DriverReply:
    if is_cut:
        raise BadReply("more output than 1 MiB")
    first, second = (out, err) if out.strip() else (err, "")
    objects = list(_objects(first))
    chosen = objects[-1] if objects else None
    if chosen is None or not chosen.has_status or first[chosen.end :].strip():
        raise BadReply("its output is no JSON object with a status")
    reply = _reply(chosen.pairs)
    if reply.status is ReplyStatus.SUCCESS:
        others = [
            other for other in (*objects[:-1], *_objects(second)) if other.has_status or other.is_broken
        ]
        _check_success(exit_code, others)
    is_whole = (out + err).strip() == first[chosen.start : chosen.end]
    return msgspec.structs.replace(reply, has_chatter=not is_whole)


def quoted(text: str) -> str:
    """Return text of a driver for a message: on one line, and not too long."""
    line = " ".join(printable(text).split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return repr(line if len(line) <= MOST_QUOTED else f"{line[:MOST_QUOTED]}...")


class _Found(msgspec.Struct, frozen=True):
    """One JSON object in the output, or a text that begins like an object and is none. `end`: position after it."""

    pairs: list[tuple[str, Any]]
    start: int
    end: int
    is_broken: bool = False

    @property
    def has_status(self) -> bool:
        return any(_folded(key) == "status" for key, _ in self.pairs)


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object in their order; a dict would lose equal keys."""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _objects(text: str) -> Iterator[_Found]:
    """Yield the JSON objects that begin a line, and broken ones."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_refuse)
    start = 0
    for _ in range(_MOST_OBJECTS):
        start = _next_object(text, start)
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            yield _Found([], start, start + 1, is_broken=True)
            start += 1
            continue
        yield _Found(value, start, end)
        start = end


def _next_object(text: str, start: int) -> int:
    """Return the position of the next ``{`` that begins a line; -1 if there is none."""
    while (start := text.find("{", start)) >= 0:
        if not text[text.rfind("\n", 0, start) + 1 : start].strip():
            return start
        start = following if (following := text.find("\n", start)) >= 0 else len(text)
    return -1


def _reply(pairs: list[tuple[str, Any]]) -> DriverReply:
    values: dict[str, Any] = {}
    for key, value in pairs:
        name = _folded(key)
        if name == "capabilities":
            values["capabilities"] = _capabilities(value, values.get("capabilities", DriverCapabilities()))
        elif name in _FIELDS and value is not None:
            field, wanted = _FIELDS[name]
            values[field] = _typed(field, value, wanted)
    status = values.get("status", "")
    by_word = {known.value: known for known in (ReplyStatus.SUCCESS, ReplyStatus.NOT_SUPPORTED)}
    values["status"] = by_word.get(status, ReplyStatus.FAILURE)
    if values["status"] is ReplyStatus.FAILURE and not values.get("message"):
        values["message"] = "" if status == "Failure" else f"status {status}"
    return DriverReply(**values)


def _capabilities(value: object, before: DriverCapabilities) -> DriverCapabilities:
    if value is None:
        return before
    if not isinstance(value, _Pairs):
        raise BadReply("field capabilities of its JSON is not an object")
    changed = {
        _FOLDED_CAPABILITIES[_folded(key)]: _typed("capabilities", has, bool)
        for key, has in value
        if _folded(key) in _FOLDED_CAPABILITIES and has is not None
    }
    return msgspec.structs.replace(before, **changed)


def _check_success(exit_code: int, others: list[_Found]) -> None:
    if exit_code != 0:
        raise BadReply("its status is Success, which contradicts the exit code")
    if any(other.is_broken or _reply(other.pairs).status is not ReplyStatus.SUCCESS for other in others):
        raise BadReply("its output has several JSON objects, which contradict each other")


def _typed(field: str, value: object, wanted: type) -> Any:
    is_large = isinstance(value, int) and not -_LIMIT <= value < _LIMIT
    if type(value) is not wanted or is_large:  # a bool is an int, too
        raise BadReply(f"field {field} of its JSON is not {_WORDS[wanted]}")
    return value


def _folded(key: str) -> str:
    """Return the key as Go compares it: without case; the long s and the Kelvin sign are letters, too."""
    return key.replace("\u017f", "s").lower()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
