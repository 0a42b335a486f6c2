"""Kinds of configuration values: how each is read from the file, from a flag, and shown.

A kind's `from_file` gets the value that YAML or JSON decoded, `from_flag` the text after ``--flag=``. Both raise
ValueError with a text that continues the sentence "'…' ". Types are strict, as the kubelet's are: a number written as a
string is refused.
"""

from __future__ import annotations

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
        """Placeholder of the value in help, such as DURATION."""
        ...

    def from_file(self, value: object) -> Any:
        """Parse a value of the configuration file; returns the value for the configuration tree."""
        ...

    def from_flag(self, text: str) -> Any:
        """Parse the text of a flag; returns the value for the configuration tree."""
        ...

    def show(self, value: Any) -> object:
        """Convert a value of the configuration tree to the form that the file would have."""
        ...


class String(msgspec.Struct, frozen=True):
    """Kind of a string. `optional`: an empty one means None."""

    optional: bool = False
    word: str = "TEXT"

    def from_file(self, value: object) -> str | None:
        """Accept strings only."""
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a string is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> str | None:
        """Accept any text; an empty one means None if `optional`."""
        return None if self.optional and not text else text

    def show(self, value: Any) -> object:
        """Return an empty string for None."""
        return value or ""


class PathKind(msgspec.Struct, frozen=True):
    """Kind of a path, made absolute from the working directory; an empty one means None."""

    word: str = "PATH"

    def from_file(self, value: object) -> Path | None:
        """Accept strings only."""
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a path is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> Path | None:
        """Make the path absolute, so that a change of directory does not change it."""
        return Path(text).absolute() if text else None

    def show(self, value: Any) -> object:
        return str(value) if value is not None else ""


class Boolean(msgspec.Struct, frozen=True):
    """Kind of a setting that is true or false. `optional`: null is accepted in the file and means None."""

    optional: bool = False
    word: str = "true|false"

    def from_file(self, value: object) -> bool | None:
        """Accept YAML booleans only."""
        if value is None and self.optional:
            return None
        if not isinstance(value, bool):
            raise ValueError(f"is {type_word(value)}; true or false is expected")
        return value

    def from_flag(self, text: str) -> bool:
        """Parse a boolean as Go's flag parser does."""
        if text.lower() in ("true", "t", "1"):
            return True
        if text.lower() in ("false", "f", "0"):
            return False
        raise ValueError("is neither true nor false")

    def show(self, value: Any) -> object:
        return value


class Integer(msgspec.Struct, frozen=True):
    """Kind of a whole number within bounds. `optional`: null is accepted in the file and means None."""

    low: int = 0
    high: int = 2**31 - 1
    optional: bool = False
    word: str = "NUMBER"

    def from_file(self, value: object) -> int | None:
        """Accept numbers only."""
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"is {type_word(value)}; a whole number is expected")
        if not self.low <= value <= self.high:
            raise ValueError(f"is out of range; it must be between {self.low} and {self.high}")
        return value

    def from_flag(self, text: str) -> int | None:
        """Parse decimal digits."""
        try:
            number = int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
        return self.from_file(number)

    def show(self, value: Any) -> object:
        return value


class Duration(msgspec.Struct, frozen=True):
    """Kind of a Go duration within bounds; bounds and parsed value are in seconds.

    `zero_means`: used in place of 0, since the kubelet treats a duration of zero as "not set".
    """

    low: float = 0.0
    high: float = float("inf")
    zero_means: float | None = None
    word: str = "DURATION"

    def from_file(self, value: object) -> float:
        """Accept strings only: a number has no unit."""
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a duration such as 20s is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> float:
        """Parse Go's duration syntax."""
        from kubeletx.kube.text.duration import format_duration, parse_duration

        seconds = parse_duration(text)
        if seconds == 0 and self.zero_means is not None:
            return self.zero_means
        if not self.low <= seconds <= self.high:
            limit = (
                f"at least {format_duration(self.low)}"
                if self.high == float("inf")
                else f"between {format_duration(self.low)} and {format_duration(self.high)}"
            )
            raise ValueError(f"is out of range; it must be {limit}")
        return seconds

    def is_unset(self, value: object) -> bool:
        """Return True if the file's value is the zero that Go programs write for unset fields."""
        from kubeletx.kube.text.duration import parse_duration

        return self.zero_means is not None and isinstance(value, str) and parse_duration(value) == 0

    def show(self, value: Any) -> object:
        """Format as a Go duration."""
        from kubeletx.kube.text.duration import format_duration

        return format_duration(value)


class Size(msgspec.Struct, frozen=True):
    """Kind of a quantity of bytes such as 10Mi, parsed to bytes."""

    word: str = "SIZE"

    def from_file(self, value: object) -> int:
        """Accept strings only, as the kubelet's field does."""
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; a size such as 10Mi is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> int:
        """Parse a positive quantity."""
        from kubeletx.kube.text import quantity

        try:
            size = quantity.to_bytes(text)
        except ValueError:
            raise ValueError("is not a size; write it like 10Mi") from None
        if size <= 0:
            raise ValueError("is not positive")
        return size

    def show(self, value: Any) -> object:
        from kubeletx.kube.text import quantity

        return quantity.from_bytes(value)


class Choice(msgspec.Struct, frozen=True):
    """Kind of a setting whose value is one of `words`. `optional`: an empty string is accepted and means None."""

    words: tuple[str, ...]
    optional: bool = False

    @property
    def word(self) -> str:
        """The allowed values joined by ``|``."""
        return "|".join(self.words)

    def from_file(self, value: object) -> str | None:
        """Accept strings only."""
        if not isinstance(value, str):
            raise ValueError(f"is {type_word(value)}; one of {', '.join(self.words)} is expected")
        return self.from_flag(value)

    def from_flag(self, text: str) -> str | None:
        """Accept one of the allowed values."""
        if not text and self.optional:
            return None
        if text not in self.words:
            raise ValueError(f"is not known; use one of {', '.join(self.words)}")
        return text

    def show(self, value: Any) -> object:
        """Return an empty string for None."""
        return value or ""


class Items(msgspec.Struct, frozen=True):
    """Kind of a list of strings, joined by commas on the command line.

    `paths`: the items are paths, made absolute.
    """

    paths: bool = False
    word: str = "A,B,..."

    def from_file(self, value: object) -> tuple[Any, ...]:
        """Accept a list of strings; a single string is parsed like a flag."""
        if isinstance(value, str):
            return self.from_flag(value)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"is {type_word(value)}; a list of strings is expected")
        return tuple(Path(item).absolute() if self.paths else item for item in value)

    def from_flag(self, text: str) -> tuple[Any, ...]:
        """Split at commas; empty parts are dropped."""
        return self.from_file([part.strip() for part in text.split(",") if part.strip()])

    def show(self, value: Any) -> object:
        return [str(item) for item in value]


class Pairs(msgspec.Struct, frozen=True):
    """Kind of a map of strings, ``a=1,b=2`` on the command line. `separator`: put between key and value there."""

    separator: str = "="
    word: str = "K=V,..."

    def from_file(self, value: object) -> dict[str, str]:
        """Accept a map of strings to strings."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str):
                raise ValueError(f"has {key!r}: {item!r}; keys and values must be strings")
        return dict(value)

    def from_flag(self, text: str) -> dict[str, str]:
        """Split at commas, then at the first separator."""
        pairs: dict[str, object] = {}
        for part in text.split(","):
            if not part.strip():
                continue
            key, found, item = part.partition(self.separator)
            if not found:
                raise ValueError(
                    f"has {part.strip()!r} without {self.separator!r}; write key{self.separator}value"
                )
            pairs[key.strip()] = item.strip()
        return self.from_file(pairs)

    def show(self, value: Any) -> object:
        return dict(value)


class HeaderMap(msgspec.Struct, frozen=True):
    """Kind of HTTP headers: a map of lists in the file, ``Name:value,...`` on the command line (repeatable)."""

    word: str = "NAME:VALUE"

    def from_file(self, value: object) -> dict[str, tuple[str, ...]]:
        """Accept a map from header names to lists of values."""
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map of lists is expected")
        headers: dict[str, tuple[str, ...]] = {}
        for name, values in value.items():
            if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
                raise ValueError(f"has {name!r}, which is not a list of strings")
            headers[str(name)] = tuple(values)
        return headers

    def from_flag(self, text: str) -> dict[str, tuple[str, ...]]:
        """Split at commas, then at the first colon."""
        headers: dict[str, tuple[str, ...]] = {}
        for part in text.split(","):
            name, found, value = part.partition(":")
            if not found or not name.strip():
                raise ValueError("is not a header; write Name:value")
            headers[name.strip()] = (*headers.get(name.strip(), ()), value.strip())
        return headers

    def show(self, value: Any) -> object:
        """Return the names, with each value hidden: headers often carry credentials."""
        return {name: ["<hidden>"] * len(values) for name, values in value.items()}


EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Taints(msgspec.Struct, frozen=True):
    """Kind of a list of taints: {key, value, effect} each in the file, ``key=value:effect,...`` on the command
    line.
    """

    word: str = "TAINTS"

    def from_file(self, value: object) -> tuple[Taint, ...]:
        """Accept a list of maps."""
        from kubeletx.kube.types.node import Taint

        if not isinstance(value, list | tuple):
            raise ValueError(f"is {type_word(value)}; a list of key, value and effect is expected")
        try:
            taints = msgspec.convert(value, tuple[Taint, ...])
        except msgspec.ValidationError as error:
            raise ValueError(f"is no list of taints: {error}") from error
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
    """Kind of grace periods by priority: a list of maps, only in the file."""

    word: str = "LIST"

    def from_file(self, value: object) -> tuple[ShutdownGroup, ...]:
        """Accept a list of {priority, shutdownGracePeriodSeconds}."""
        from kubeletx.node.shutdown import ShutdownGroup

        if not isinstance(value, list | tuple):
            raise ValueError(
                f"is {type_word(value)}; a list of priority and shutdownGracePeriodSeconds is expected"
            )
        try:
            groups = msgspec.convert(value, tuple[ShutdownGroup, ...])
        except msgspec.ValidationError as error:
            raise ValueError(f"is no list of grace periods: {error}") from error
        if len({group.priority for group in groups}) < len(groups):
            raise ValueError("names a priority twice")
        return groups

    def from_flag(self, text: str) -> tuple[ShutdownGroup, ...]:
        raise ValueError("can only be set in the configuration file")

    def show(self, value: Any) -> object:
        return list(msgspec.to_builtins(value))


class Tables(msgspec.Struct, frozen=True):
    """Kind of plugins' settings: a map of maps, only in the file; each plugin checks its own."""

    word: str = "MAP"

    def from_file(self, value: object) -> dict[str, dict[str, Any]]:
        """Accept a map from kind to a map of settings."""
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


def type_word(value: object) -> str:
    """Name of a value's type in YAML."""
    words = {type(None): "empty", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return words.get(type(value), "a list" if isinstance(value, list) else "a map")
