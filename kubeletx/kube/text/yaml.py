"""Reading and writing of YAML, restricted to the syntax that Kubernetes accepts.

Documents are built from the parser's events, not through PyYAML's constructors: no Python objects can be created,
duplicate keys are refused, and aliases cannot exhaust memory (each alias counts as many values as it expands to).
Scalars follow the rules of Kubernetes' own YAML library: ``0644`` is octal, ``yes``, ``on`` and ``y`` are true, ``1.0``
is the integer 1, but ``12:30`` and ``2024-01-01`` are strings. Merge keys (``<<``) work. Keys become strings after that,
so that the keys ``0644`` and ``yes`` are ``"420"`` and ``"true"``.

PyYAML is imported at the first use, so that commands that read no manifest start faster.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

MAX_DEPTH: Final = 100
MAX_ALIASED: Final = 10_000
"""Maximum number of values after the expansion of all aliases of one text."""
MAX_VALUES: Final = 1_000_000

_TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final[dict[str, bool | None]] = {
    spelled: value
    for word, value in (
        ("true", True),
        ("yes", True),
        ("y", True),
        ("on", True),
        ("false", False),
        ("no", False),
        ("n", False),
        ("off", False),
        ("null", None),
    )
    for spelled in (word, word.capitalize(), word.upper())
} | {"": None, "~": None}
_NUMBER_STARTS: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0b(?P<bin>[01_]+)|0x(?P<hex>[0-9a-fA-F_]+)|0o?(?P<oct>[0-7_]+)|(?P<dec>0|[1-9][0-9_]*))",
    re.ASCII,
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_BASES: Final = {"bin": 2, "hex": 16, "oct": 8, "dec": 10}


class YamlError(ValueError):
    """The text is not acceptable YAML. `line` counts from 1; 0 if the line is unknown."""

    def __init__(self, problem: str, *, line: int = 0, fix: str = "correct the YAML") -> None:
        super().__init__(problem)
        self.problem, self.line, self.fix = problem, line, fix


def parse_documents(text: str) -> list[Any]:
    """Parse a text and return its non-empty documents, made of dict, list, str, int, float, bool and None.

    Raises YamlError. Values behind an alias are shared, not copied: do not change the result.
    """
    import yaml

    loader: Any = None
    try:
        loader = _loader(text)
        return [value for value in _Builder(loader.get_event).documents() if value is not None]
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        line = mark.line + 1 if mark else 0
        raise YamlError(_describe(err.problem or err.context), line=line, fix=_fix(text, line)) from err
    except yaml.YAMLError as err:
        raise YamlError(_describe(getattr(err, "reason", None) or str(err))) from err
    except RecursionError as err:
        raise YamlError("is nested too deep", fix="flatten the manifest") from err
    finally:
        if loader is not None:
            loader.dispose()


def dump_yaml(value: Any) -> str:
    """Write plain data (as from ``msgspec.to_builtins``) as YAML with sorted keys, as kubectl prints it."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=_dumper(), default_flow_style=False, sort_keys=True, allow_unicode=True
    )
    return text


@functools.cache
def _dumper() -> Any:
    """Return a PyYAML dumper class that also quotes strings which YAML readers of Kubernetes parse as another type."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        pass

    def represent(dumper: Any, text: str) -> Any:
        style = None if isinstance(_plain(text), str) else "'"
        return dumper.represent_scalar(_TAG + "str", text, style=style)

    Dumper.add_representer(str, represent)
    return Dumper


def _loader(text: str) -> Any:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader(text)


def _describe(problem: str | None) -> str:
    return f"is not YAML: {problem}" if problem else "is not YAML"


def _fix(text: str, line: int) -> str:
    lines = text.split("\n")
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = shown[: len(shown) - len(shown.lstrip())]
    return "indent with spaces, not tabs" if "\t" in indent else "correct the YAML"


class _Builder:
    """Builds the documents of a text from the parser's events, and counts their values to limit aliases."""

    def __init__(self, next_event: Callable[[], Any]) -> None:
        self._next = next_event
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._made = 0
        self._aliased = 0

    def documents(self) -> Iterator[Any]:
        import yaml

        self._alias_event, self._scalar_event = yaml.AliasEvent, yaml.ScalarEvent
        self._sequence_event, self._mapping_event = yaml.SequenceStartEvent, yaml.MappingStartEvent
        self._ends = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
        self._next()  # stream start
        while isinstance(self._next(), yaml.DocumentStartEvent):
            self._anchors.clear()
            yield self._value(self._next(), 0)
            self._next()  # document end

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is self._alias_event:
            return self._alias(event)
        before = self._made
        self._made += 1
        if self._made > MAX_VALUES:
            raise YamlError(f"has more than {MAX_VALUES} values", fix="split the file")
        if depth > MAX_DEPTH:
            raise YamlError(f"is nested deeper than {MAX_DEPTH} levels", line=_line(event), fix="flatten it")
        value: Any
        if kind is self._scalar_event:
            value = _scalar(event)
        elif kind is self._mapping_event:
            value = self._mapping(event, depth + 1)
        else:
            value = self._sequence(event, depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._made - before)
        return value

    def _alias(self, event: Any) -> Any:
        known = self._anchors.get(event.anchor)
        if known is None:
            raise YamlError(
                f"uses the alias *{event.anchor}, which no finished value above it defines", line=_line(event)
            )
        value, size = known
        self._made += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise YamlError(
                f"repeats more than {MAX_ALIASED} values through aliases",
                line=_line(event),
                fix="write the values out instead of using aliases",
            )
        return value

    def _sequence(self, start: Any, depth: int) -> list[Any]:
        _check_tag(start, "seq")
        items = []
        while not isinstance(event := self._next(), self._ends):
            items.append(self._value(event, depth))
        return items

    def _mapping(self, start: Any, depth: int) -> dict[str, Any]:
        _check_tag(start, "map")
        mapping: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := self._next(), self._ends):
            if type(event) is not self._scalar_event:
                raise YamlError("has a key that is not a string", line=_line(event))
            key = _key(event)
            value = self._value(self._next(), depth)
            if key == "<<" and event.implicit[0]:
                merged.extend(value if isinstance(value, list) else (value,))
                continue
            if key in mapping:
                raise YamlError(f"has the key {key!r} twice", line=_line(event), fix="remove one of them")
            mapping[key] = value
        for other in merged:
            if not isinstance(other, dict):
                raise YamlError("merges (<<) something that is not a mapping", line=_line(start))
            mapping = {**other, **mapping}
        return mapping


def _key(event: Any) -> str:
    text: str = event.value
    value = _plain(text) if event.tag is None and event.implicit[0] else text
    if isinstance(value, bool):
        return "true" if value else "false"
    return text if value is None else str(value)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _check_tag(event: Any, name: str) -> None:
    if event.tag is not None and event.tag not in (_TAG + name, "!"):
        raise YamlError(f"has the tag {event.tag!r}", line=_line(event), fix="remove the tag")


def _scalar(event: Any) -> Any:
    text: str = event.value
    tag = event.tag
    if tag is None or tag == "!":
        return _plain(text) if event.implicit[0] else text
    if tag == _TAG + "str":
        return text
    value = _plain(text)
    expected = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(tag.removeprefix(_TAG))
    if expected is float and type(value) is int:
        return value
    if expected is None or type(value) is not expected:
        raise YamlError(f"has the tag {tag!r} before {text!r}", line=_line(event), fix="remove the tag")
    return value


def _plain(text: str) -> Any:
    if text[:1] in _NUMBER_STARTS and text:
        return _number(text)
    return _CONSTANTS.get(text, text) if len(text) <= 5 else text


def integer(sign: str, digits: str, base: int, text: str) -> int | str:
    """Parse `digits` in `base`, apply `sign`, and return the integer.

    Returns `text`, the whole scalar, if `digits` is empty or the number does not fit in 64 bits: no API field accepts
    a larger number.
    """
    if not digits or len(digits) > 64:
        return text
    number = int(digits, base)
    number = -number if sign == "-" else number
    return number if -(2**63) <= number < 2**63 else text


def _number(text: str) -> Any:
    match = _INTEGER.fullmatch(text)
    if match is not None and match.lastgroup is not None:
        return integer(match["sign"], match[match.lastgroup].replace("_", ""), _BASES[match.lastgroup], text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value - value != 0:
            return text  # an overflow to infinity stays text
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return text
