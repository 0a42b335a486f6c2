"""Kinds of configuration values: each parses its values from the file and from a flag, and formats them for display.

`from_file` gets the value decoded from YAML or JSON, `from_flag` the text after ``--flag=``. Both return the value for
the configuration tree (`AgentConfig`). Both raise ValueError with a message that continues a sentence about the
value, such as "is not a whole number". Types are strict, as the kubelet's are: a number written as a string is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:  # the help text must not wait for them
    from kubeletx.kube.types.node import Taint
    from kubeletx.node.shutdown import ShutdownGroup


class SettingKind(Protocol):
    """Kind of a setting's value: parses it from the file or from a flag, and formats it for display."""

    @property
    def word(self) -> str:
        """Placeholder for the value in the help text of a flag, such as DURATION."""
        ...

    def from_file(self, value: object) -> Any:
        """Parse a value of the configuration file; returns the value for the configuration tree.

        Raises ValueError for a wrong type, and for a value that the kind does not allow.
        """
        ...

    def from_flag(self, text: str) -> Any:
        """Parse the text of a flag; returns the value for the configuration tree. Raises ValueError as `from_file`."""
        ...

    def show(self, value: Any) -> object:
        """Convert a value of the configuration tree to the value that a configuration file would contain."""
        ...


class String(msgspec.Struct, frozen=True):
    """Kind of a string. `optional`: an empty string is parsed to None.

    `empty_is_unset`: an empty string in the file means "not set".
    """

    optional: bool = False
    empty_is_unset: bool = False
    word: str = "TEXT"

    def from_file(self, value: object) -> str | None:
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a string is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> str | None:
        return None if self.optional and not text else text

    def show(self, value: Any) -> object:
        return value or ""


class PathKind(msgspec.Struct, frozen=True):
    """Kind of a path. A relative path is resolved from the working directory; an empty one is `empty_means`."""

    word: str = "PATH"
    empty_means: Path | None = None
    exact: bool = False
    """The path must be written as it is used: absolute, in ASCII, without ``..`` and superfluous slashes."""

    def from_file(self, value: object) -> Path | None:
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a path is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> Path | None:
        """Return the absolute path; `empty_means` for an empty text. Raises ValueError if it is not `exact`."""
        if self.exact and not (text.isascii() and text.startswith("/") and posixpath.normpath(text) == text):
            raise ValueError("is not an absolute path in ASCII without '..' and superfluous slashes")
        return Path(text).absolute() if text else self.empty_means

    def show(self, value: Any) -> object:
        return str(value) if value is not None else ""


class Boolean(msgspec.Struct, frozen=True):
    """Kind of a setting that is true or false."""

    word: str = "true|false"

    def from_file(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"is {type_word(value)}; true or false is expected")
        return value

    def from_flag(self, text: str) -> bool:
        """Parse true, t, 1, false, f or 0 in upper or lower case. Raises ValueError for any other value."""
        if text.lower() in ("true", "t", "1"):
            return True
        if text.lower() in ("false", "f", "0"):
            return False
        raise ValueError("is neither true nor false")

    def show(self, value: Any) -> object:
        return value


class Integer(msgspec.Struct, frozen=True):
    """Kind of a whole number from `low` to `high`.

    `zero_is_unset`: 0 in the file means "not set". `step`: the number must be a multiple of it.
    """

    low: int = 0
    high: int = 2**31 - 1
    zero_is_unset: bool = False
    step: int = 1
    word: str = "NUMBER"

    def from_file(self, value: object) -> int:
        """Return the whole number, which may be written as ``5.0`` or ``1e2``.

        Raises ValueError for another type, and for a number that is not between `low` and `high`.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"is {type_word(value)}; a whole number is expected")
        if not self.low <= value <= self.high:
            raise ValueError(f"is out of range; it must be between {self.low} and {self.high}")
        if value % self.step:
            raise ValueError(f"is not a multiple of {self.step}")
        return value

    def from_flag(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
        return self.from_file(number)

    def show(self, value: Any) -> object:
        return value


class Duration(msgspec.Struct, frozen=True):
    """Kind of a duration in Go's syntax, such as 1m30s; parsed to seconds.

    `low`, `high`: bounds in seconds. `zero_is_unset`: the default is used instead of 0, as by a kubelet. `nullable`: null
    in the file means "not set"; a kubelet accepts that for few durations. `forgives_negative`: a negative duration in the
    file means "not set".
    """

    low: float = 0.0
    high: float = float("inf")
    zero_is_unset: bool = False
    nullable: bool = True
    forgives_negative: bool = False
    word: str = "DURATION"

    def from_file(self, value: object) -> float:
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a duration such as 20s is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> float:
        """Parse a duration in Go's syntax; returns seconds. Raises ValueError if it is out of bounds.

        With `zero_is_unset`, 0 is within the bounds, and the caller uses the default instead.
        """
        from kubeletx.kube.text.duration import format_duration, parse_duration

        seconds = parse_duration(text)
        if seconds == 0 and self.zero_is_unset:
            return seconds
        if not self.low <= seconds <= self.high:
            limit = (
                f"at least {format_duration(self.low)}"
                if self.high == float("inf")
                else f"between {format_duration(self.low)} and {format_duration(self.high)}"
            )
            raise ValueError(f"is out of range; it must be {limit}")
        return seconds

    def show(self, value: Any) -> object:
        from kubeletx.kube.text.duration import format_duration

        return format_duration(value)


class Size(msgspec.Struct, frozen=True):
    """Kind of a size in bytes, written as a Kubernetes quantity such as 10Mi; parsed to bytes."""

    word: str = "SIZE"

    def from_file(self, value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a size such as 10Mi is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> int:
        from kubeletx.kube.text import quantity

        try:
            nanos = quantity.parse(text).nanos
        except ValueError:
            raise ValueError("is not a size; write it like 10Mi") from None
        if nanos % quantity.NANO:
            raise ValueError("is not a whole number of bytes")
        return nanos // quantity.NANO

    def show(self, value: Any) -> object:
        from kubeletx.kube.text import quantity

        return quantity.from_bytes(value)


class Choice(msgspec.Struct, frozen=True):
    """Kind of a setting whose value is one of `words`. `optional`: an empty string is accepted and parsed to None."""

    words: tuple[str, ...]
    optional: bool = False

    @property
    def word(self) -> str:
        return "|".join(self.words)

    def from_file(self, value: object) -> str | None:
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; one of {', '.join(self.words)} is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> str | None:
        if not text and self.optional:
            return None
        if text not in self.words:
            raise ValueError(f"is not known; use one of {', '.join(self.words)}")
        return text

    def show(self, value: Any) -> object:
        return value or ""


class Items(msgspec.Struct, frozen=True):
    """Kind of a list of strings; on the command line they are joined by commas.

    `paths`: the items are paths; each is made absolute. `text`: in the file they may be joined by commas, too.
    """

    paths: bool = False
    text: bool = True
    word: str = "A,B,..."

    def from_file(self, value: object) -> tuple[Any, ...]:
        """Return the strings of a list, ``""`` for null; split a single string as `from_flag` does if `text`.

        Raises ValueError for any other value.
        """
        if isinstance(value, str) and self.text:
            return self.from_flag(value)
        value = ["" if item is None else item for item in value] if isinstance(value, list) else value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"is {type_word(value)}; a list of strings is expected")
        return tuple(Path(item).absolute() if self.paths else item for item in value)

    def from_flag(self, text: str) -> tuple[Any, ...]:
        return self.from_file([part.strip() for part in text.split(",") if part.strip()])

    def show(self, value: Any) -> object:
        return [str(item) for item in value]


class Pairs(msgspec.Struct, frozen=True):
    """Kind of a map from strings to strings; on the command line ``a=1,b=2``.

    `separator`: text between key and value on the command line.
    """

    separator: str = "="
    word: str = "K=V,..."

    def from_file(self, value: object) -> dict[str, str]:
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        value = {key: "" if item is None else item for key, item in value.items()}
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str):
                raise ValueError(f"has {key!r}: {item!r}; keys and values must be strings")
        return dict(value)

    def from_flag(self, text: str) -> dict[str, str]:
        """Split the text at commas, and each item into key and value at its first separator.

        Raises ValueError for an item without a separator.
        """
        pairs: dict[str, object] = {}
        for part in text.split(","):
            if not part.strip():
                continue
            key, separator, item = part.partition(self.separator)
            if not separator:
                raise ValueError(
                    f"has {part.strip()!r} without {self.separator!r}; write key{self.separator}value"
                )
            pairs[key.strip()] = item.strip()
        return self.from_file(pairs)

    def show(self, value: Any) -> object:
        return dict(value)


class HeaderMap(msgspec.Struct, frozen=True):
    """Kind of a set of HTTP headers.

    In the file, it is a map from header names to lists of values. On the command line it is ``Name:value,...``, and the
    flag may be repeated.
    """

    word: str = "NAME:VALUE"

    def from_file(self, value: object) -> dict[str, tuple[str, ...]]:
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map of lists is expected")
        headers: dict[str, tuple[str, ...]] = {}
        for name, values in value.items():
            try:
                headers[str(name)] = Items(text=False).from_file([] if values is None else values)
            except ValueError:
                raise ValueError(f"has {name!r}, which is not a list of strings") from None
        return headers

    def from_flag(self, text: str) -> dict[str, tuple[str, ...]]:
        """Split the text at commas, and each item into name and value at its first colon.

        Raises ValueError for an item without a colon or a name.
        """
        headers: dict[str, tuple[str, ...]] = {}
        for part in text.split(","):
            name, colon, value = part.partition(":")
            if not colon or not name.strip():
                raise ValueError("is not a header; write Name:value")
            headers[name.strip()] = (*headers.get(name.strip(), ()), value.strip())
        return headers

    def show(self, value: Any) -> object:
        """Return the header names, with each value hidden: headers often contain credentials."""
        return {name: ["<hidden>"] * len(values) for name, values in value.items()}


EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Taints(msgspec.Struct, frozen=True):
    """Kind of a list of taints.

    In the file, each is a map of key, value and effect. On the command line they are ``key=value:effect,...``.
    """

    word: str = "TAINTS"

    def from_file(self, value: object) -> tuple[Taint, ...]:
        from kubeletx.kube.types.node import Taint

        if not isinstance(value, list | tuple):
            raise ValueError(f"is {type_word(value)}; a list of key, value and effect is expected")
        if any("timeAdded" in taint for taint in value if isinstance(taint, dict)):
            raise ValueError("has a taint with timeAdded, which only the cluster sets; remove it")
        try:
            taints = msgspec.convert(value, tuple[Taint, ...])
        except msgspec.ValidationError as error:
            raise ValueError(f"is not a list of taints: {error}") from error
        return tuple(_checked(taint) for taint in taints)

    def from_flag(self, text: str) -> tuple[Taint, ...]:
        """Parse ``key[=value]:effect,...``. Raises ValueError for an item without an effect."""
        from kubeletx.kube.types.node import Taint

        taints = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            rest, colon, effect = part.rpartition(":")
            key, _, value = rest.partition("=")
            if not colon:
                raise ValueError(f"has {part!r} without an effect; write key=value:NoSchedule")
            taints.append(_checked(Taint(key=key, value=value or None, effect=effect)))
        return tuple(taints)

    def show(self, value: Any) -> object:
        return list(msgspec.to_builtins(value))


def _checked(taint: Taint) -> Taint:
    if not taint.key or taint.effect not in EFFECTS:
        raise ValueError(
            f"has {taint.key!r} with the effect {taint.effect!r}; write key=value:EFFECT with {', '.join(EFFECTS)}"
        )
    return taint


class PriorityGraces(msgspec.Struct, frozen=True):
    """Kind of a list of shutdown grace periods by pod priority. It can be set only in the file."""

    word: str = "LIST"

    def from_file(self, value: object) -> tuple[ShutdownGroup, ...]:
        """Convert a list of maps of priority and shutdownGracePeriodSeconds.

        Raises ValueError for any other value, and if a priority occurs twice.
        """
        from kubeletx.node.shutdown import ShutdownGroup

        if not isinstance(value, list | tuple):
            raise ValueError(
                f"is {type_word(value)}; a list of priority and shutdownGracePeriodSeconds is expected"
            )
        zero = {"priority": 0, "shutdownGracePeriodSeconds": 0}
        try:
            groups = msgspec.convert([_filled(group, zero) for group in value], tuple[ShutdownGroup, ...])
        except msgspec.ValidationError as error:
            raise ValueError(f"is not a list of grace periods: {error}") from error
        if len({group.priority for group in groups}) < len(groups):
            raise ValueError("names a priority twice")
        return groups

    def from_flag(self, text: str) -> tuple[ShutdownGroup, ...]:
        raise ValueError("can only be set in the configuration file")

    def show(self, value: Any) -> object:
        return list(msgspec.to_builtins(value))


def _filled(group: Any, zero: Mapping[str, int]) -> Any:
    """Return the map with checked numbers, and with `zero` for missing and null ones."""
    if not isinstance(group, dict | None):
        return group
    given = {name: value for name, value in (group or {}).items() if value is not None}
    numbers = {name: Integer(low=-(2**31)).from_file(given[name]) for name in zero if name in given}
    return {**zero, **given, **numbers}


class Tables(msgspec.Struct, frozen=True):
    """Kind of the plugins' settings: a map from names to maps. It can be set only in the file.

    The names are runtime kinds or names of other registrations. Each plugin's settings are checked later, against the
    type that the plugin declares.
    """

    word: str = "MAP"

    def from_file(self, value: object) -> dict[str, dict[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        for kind, settings in value.items():
            if not isinstance(settings, dict):
                raise ValueError(f"has {kind!r}, which is {type_word(settings)}; a map is expected")
        return {str(kind): dict(settings) for kind, settings in value.items()}

    def from_flag(self, text: str) -> dict[str, dict[str, Any]]:
        raise ValueError("can only be set in the configuration file")

    def show(self, value: Any) -> object:
        return value


def is_unset(kind: SettingKind, value: object) -> bool:
    """Return True if the file's value means "not set": null, or the zero value that a kubelet replaces by its default.

    Raises ValueError if the kind cannot parse the value. Source: kubelet, SetDefaults_KubeletConfiguration.
    """
    kind = getattr(kind, "like", None) or kind
    if value is None:
        return not isinstance(kind, Duration) or kind.nullable
    if isinstance(kind, Duration):
        from kubeletx.kube.text.duration import parse_duration

        if not isinstance(value, str) or not kind.zero_is_unset:
            return False
        if kind.forgives_negative and value.startswith("-"):
            return parse_duration(value[1:]) >= 0
        return parse_duration(value) == 0
    if isinstance(kind, Integer):
        return kind.zero_is_unset and not isinstance(value, bool) and value == 0
    empty_is_unset = (
        isinstance(kind, Choice | Size)
        or (isinstance(kind, String) and kind.empty_is_unset)
        or (isinstance(kind, PathKind) and kind.exact)
    )
    return empty_is_unset and value == ""


def type_word(value: object) -> str:
    """Return a phrase for the value's YAML type, such as "a list", for error messages."""
    words = {type(None): "empty", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return words.get(type(value), "a list" if isinstance(value, list) else "a map")
