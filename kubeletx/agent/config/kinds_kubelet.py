"""`KubeletOption`, a setting of the kubelet that has no effect in kubeletx, and kinds of values that only these have.

- `tree.SETTINGS` has the kubelet's settings that have an effect.
- `kubelet_options` has the others. The two tables cover every flag and every KubeletConfiguration field of
  kubelet v1.36; a test compares them with the kubelet's own list.
- `kubelet_legacy` has flags of kubelets since v1.15 that v1.36 no longer has.

A flag and the field of the same setting are one `KubeletOption`. A value that needs no missing feature, such as the
kubelet's default, is accepted without a warning. Any other value is accepted with one warning at start that names
the consequence. It is refused instead if pods would be promised something that they do not get.

Source: kubelet v1.36, config/v1beta1/types.go and cmd/kubelet/app/options.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .kinds import Boolean, Integer, Pairs, SettingKind, type_word

_CURVES: Final = (23, 24, 25, 29, 4587, 4588, 4589)
"""P-256, P-384, P-521, X25519 and three hybrids with ML-KEM. Source: IANA, TLS Supported Groups; Go, crypto/tls."""


class Opaque(msgspec.Struct, frozen=True):
    """Kind of a setting whose value the agent does not use. `like`: the kind that checks it; None: any value is valid.

    The value is kept as it is written. `numbers`: whole numbers from 0 are valid in the file, too.
    """

    like: SettingKind | None = None
    numbers: bool = False
    word: str = "VALUE"

    def from_file(self, value: object) -> object:
        if self.like is not None and not (self.numbers and type(value) is int and value >= 0):
            self.like.from_file(value)
        return value

    def from_flag(self, text: str) -> str:
        if self.like is not None and not (self.numbers and text.isdecimal()):
            self.like.from_flag(text)
        return text

    def show(self, value: Any) -> object:
        return value


class Switches(msgspec.Struct, frozen=True):
    """Kind of a map from names to true or false, such as feature gates; on the command line ``A=true,B=false``."""

    word: str = "NAME=true|false,..."

    def from_file(self, value: object) -> dict[str, bool]:
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        value = {name: False if switch is None else switch for name, switch in value.items()}
        for name, switch in value.items():
            if not isinstance(name, str) or not isinstance(switch, bool):
                raise ValueError(f"has {name!r}: {switch!r}; true or false is expected")
        return dict(value)

    def from_flag(self, text: str) -> dict[str, bool]:
        switches = {}
        for part in text.split(","):
            if not part.strip():
                continue
            name, sign, switch = part.partition("=")
            if not sign:
                raise ValueError(f"has {part.strip()!r} without '='; write NAME=true")
            try:
                switches[name.strip()] = Boolean().from_flag(switch.strip())
            except ValueError as error:
                raise ValueError(f"has {part.strip()!r}, which {error}") from None
        return switches

    def show(self, value: Any) -> object:
        return dict(value)


class Fraction(msgspec.Struct, frozen=True):
    """Kind of a number that is more than 0 and at most 1. It can be set only in the file."""

    word: str = "NUMBER"

    def from_file(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"is {type_word(value)}; a number is expected")
        if not 0 < value <= 1:
            raise ValueError("is out of range; it must be more than 0 and at most 1")
        return value

    def from_flag(self, text: str) -> float:
        raise ValueError("can only be set in the configuration file")

    def show(self, value: Any) -> object:
        return value


class Curves(msgspec.Struct, frozen=True):
    """Kind of a list of TLS curves by their IANA numbers. It can be set only in the file."""

    word: str = "LIST"

    def from_file(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise ValueError(f"is {type_word(value)}; a list of numbers is expected")
        if unknown := [item for item in value if isinstance(item, bool) or item not in _CURVES]:
            raise ValueError(f"has {unknown[0]!r}; use {', '.join(map(str, _CURVES))}")
        if len(set(value)) < len(value):
            raise ValueError("names a curve twice")
        return tuple(value)

    def from_flag(self, text: str) -> tuple[int, ...]:
        raise ValueError("can only be set in the configuration file")

    def show(self, value: Any) -> object:
        return list(value)


class Modules(msgspec.Struct, frozen=True):
    """Kind of a list of file patterns with a verbosity each; on the command line ``a=1,b=2``."""

    word: str = "PATTERN=NUMBER,..."

    def from_file(self, value: object) -> dict[str, int]:
        if not isinstance(value, list):
            raise ValueError(f"is {type_word(value)}; a list of filePattern and verbosity is expected")
        verbosities = {}
        for item in value:
            pattern = item.get("filePattern") if isinstance(item, dict) else None
            if not isinstance(pattern, str) or not pattern or "," in pattern or "=" in pattern:
                raise ValueError("has an item without filePattern, or with ',' or '=' in it")
            verbosities[pattern] = Integer().from_file(item.get("verbosity") or 0)
        return verbosities

    def from_flag(self, text: str) -> dict[str, int]:
        pairs = Pairs().from_flag(text)
        return {pattern: Integer().from_flag(number) for pattern, number in pairs.items()}

    def show(self, value: Any) -> object:
        return [{"filePattern": pattern, "verbosity": number} for pattern, number in value.items()]


class KubeletOption(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the kubelet that has no effect in kubeletx.

    `field`: field of KubeletConfiguration, empty if there is only the flag. `flag`: empty if there is only the field.
    `silent`: values accepted without a warning; empty texts, lists and maps are always accepted without one.
    `refused`: the agent does not start with any other value. `accepted`: values of a refused option that are
    accepted with a warning.
    """

    field: str = ""
    flag: str = ""
    kind: SettingKind
    silent: tuple[object, ...] = ()
    words: str
    """What happens without the setting, for the warning; for a refused option, what to do instead."""
    refused: bool = False
    accepted: tuple[str, ...] = ()
    fix: str = ""
    """What to do about a refused value; empty: `words` says it."""

    def is_silent(self, value: Any) -> bool:
        """Return True if the value is accepted without a warning, since it needs no missing feature."""
        if value is None or (isinstance(value, str | list | dict | tuple) and not value):
            return True
        return any(type(value) is type(default) and value == default for default in self.silent)

    def is_refused(self, value: Any) -> bool:
        """Return True if the agent refuses to start with this value."""
        return self.refused and not self.is_silent(value) and value not in self.accepted
