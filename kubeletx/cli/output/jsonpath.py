"""Output format ``jsonpath``: a template with expressions in braces, as kubectl understands it.

Text outside braces is printed as it is. An expression is a sequence of steps. Each step makes a list of values of the
values before it, so that a field that is not there gives an empty list, which is printed as nothing. Several values are
printed with a space between them, lists and maps as JSON. Syntax: fields ``.a.b`` (``\\.`` is a dot in a name), ``['a']``,
``.*``, ``[0]``, ``[-1]``, ``[1:3]``, ``[::2]``, ``[*]``, ``[0,2]``, ``['a','b']``, filters ``[?(@.a=="b")]`` with == != < <=
> >= or without a comparison, ``..a``, ``"text\\n"``, and ``{range EXPRESSION}...{end}``.
Source: client-go, util/jsonpath; differences between versions of kubectl are decided as in 1.32.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

from .go_values import compact_json, go_text, unquote

Step = Callable[[list[Any]], list[Any]]

_FIELD: Final = r"\.((?:\\.|[^\s.,\[\]$@{}\\])*)"
_QUOTED: Final = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_LITERAL: Final = r"(?:true|false)\b|[+-]?\d+(?:\.\d+)?"
_SLICE: Final = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")
_FILTER: Final = r"\[\?\(((?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\"')])*)\)\]"
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=~]+)(.+)", re.S)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Expression(NamedTuple):
    """One expression, or a text between expressions. `body`: for a range, what follows until its end."""

    steps: Sequence[Step]
    body: Sequence[_Expression] | None = None

    def values(self, value: Any) -> list[Any]:
        values = [value]
        for step in self.steps:
            values = step(values)
        return values


class JsonPath:
    """A parsed template. The constructor raises InvalidConfig, which names the error, for a template with one."""

    def __init__(self, template: str, *, option: str = "-o jsonpath") -> None:
        self._template, self._option, self._rest = template, option, template
        self._expressions = self._parse(in_range=False)

    def find(self, value: Any) -> list[Any]:
        """Return the values of all expressions, in order. `value`: as decoded from JSON. Raises InvalidConfig."""
        return [found for values in _run(self._expressions, value) for found in values]

    def print(self, value: Any) -> str:
        """Return what kubectl prints for an object. `value`: as decoded from JSON. Raises InvalidConfig."""
        return "".join(" ".join(map(_text, values)) for values in _run(self._expressions, value))

    def _match(self, pattern: str) -> re.Match[str] | None:
        """Remove the pattern from the beginning of the rest."""
        match = re.match(pattern, self._rest, re.S)
        if match is not None:
            self._rest = self._rest[match.end() :]
        return match

    def _parse(self, *, in_range: bool) -> list[_Expression]:
        """Parse until the end of the template or of the range."""
        found: list[_Expression] = []
        while self._rest:
            if text := self._match(r"[^{]+"):
                found.append(_Expression([_constant(text[0])]))
                continue
            self._match(r"\{")
            steps: list[Step] = []
            word = ""
            while not self._match(r"\}"):
                if not self._rest:
                    raise self._error("an expression is not closed", "close it with }")
                if name := self._match(r"(range|end)(?![\w-])"):
                    word = name[1]
                else:
                    steps.append(self._step())
            if word == "end":
                if not in_range:
                    raise self._error("{end} has no {range} before it")
                break
            found.append(_Expression(steps, self._parse(in_range=True) if word else None))
        return found

    def _step(self) -> Step:
        if match := self._match(_FILTER):
            return self._filter(match[1])
        if self._match(r"\.\."):
            if re.match(r"\w", self._rest):
                self._rest = f".{self._rest}"
            return _descend
        if match := self._match(_FIELD):
            name = re.sub(r"\\(.)", r"\1", match[1])
            return _wildcard if name == "*" else _member(name)
        if match := self._match(r"\[([^\]]*)\]"):
            return self._union(match[1])
        if match := self._match(_QUOTED):
            return _constant(unquote(match[0]))
        if match := self._match(_LITERAL):
            value = json.loads(match[0].lstrip("+"))
            return lambda values: [value] * len(values)
        if self._match(r"[ @$]"):
            return lambda values: values
        word = re.match(r"[\w-]+|.", self._rest, re.S)
        raise self._error(
            f"{word[0] if word else ''!r} is not understood",
            "begin a field with a dot, as in {.metadata.name}",
        )

    def _inner(self, text: str) -> _Expression:
        return JsonPath("{" + text + "}", option=self._option)._expressions[0]

    def _union(self, text: str) -> Step:
        """Return the step of the text between brackets: an index, a slice, a name, or several of them."""
        parts = [self._element(part.strip() if "," in text else part) for part in text.split(",")]
        return lambda values: [value for part in parts for value in part(values)]

    def _element(self, text: str) -> Step:
        if len(text) > 1 and text[0] == text[-1] == "'":
            member = self._inner(f".{text[1:-1]}")
            return lambda values: [found for value in values for found in member.values(value)]
        match = _SLICE.fullmatch(":" if text == "*" else text)
        if match is None:
            raise self._error(f"[{text}] is no index", "write [0], [1:3], [*] or ['name']")
        is_index = match[2] is None
        start, end, step = (
            int(bound) if (bound := (each or "").lstrip(":")) else None for each in match.groups()
        )

        def items(values: list[Any]) -> list[Any]:
            found: list[Any] = []
            for value in values:
                if value is None:
                    continue
                if not isinstance(value, list):
                    raise self._error(f"{_kind(value)} is no list", "take a field of it")
                count = len(value)
                first = (start or 0) % count if -count <= (start or 0) < 0 else start or 0
                last = first + 1 if is_index else count if end is None else end + (count if end < 0 else 0)
                if first != last and not (0 <= first < count and 0 < last <= count):
                    raise self._error(f"[{text}] of a list of {count} is out of range")
                if first > last:
                    raise self._error(f"slice begins at {first}, after its end {last}")
                found += value[first : last : step or 1]
            return found

        return items

    def _filter(self, text: str) -> Step:
        comparison = _COMPARISON.fullmatch(text)
        left = self._inner(comparison[1] if comparison else text)
        right = self._inner(comparison[3]) if comparison else None
        sign = comparison[2] if comparison else "=="
        if sign not in _COMPARE:
            raise self._error(f"{sign} is no comparison", f"use one of {' '.join(_COMPARE)}")

        def passes(item: Any) -> bool:
            lefts = left.values(item)
            if right is None or not lefts:
                return bool(lefts)
            rights = right.values(item)
            if len(lefts) > 1 or len(rights) > 1:
                raise self._error("a filter compares several values", "compare one")
            return bool(rights) and self._compare(sign, lefts[0], rights[0])

        def step(values: list[Any]) -> list[Any]:
            for value in values:
                if not isinstance(value, list):
                    raise self._error(f"{_kind(value)} is no list and cannot be filtered")
            return [item for value in values for item in value if passes(item)]

        return step

    def _compare(self, sign: str, left: Any, right: Any) -> bool:
        kind = _kind(left)
        comparable = ("a number", "a text", "a boolean") if sign in ("==", "!=") else ("a number", "a text")
        if kind != _kind(right) or kind not in comparable:
            raise self._error(f"cannot compare {kind} with {_kind(right)}")
        return _COMPARE[sign](left, right)

    def _error(self, problem: str, fix: str = "correct the expression") -> InvalidConfig:
        return InvalidConfig(field=self._option, problem=f"{self._template!r}: {problem}", fix=fix)


def _run(expressions: Sequence[_Expression], value: Any) -> Iterator[list[Any]]:
    for expression in expressions:
        found = expression.values(value)
        if expression.body is None:
            yield found
        else:
            for item in found:
                yield from _run(expression.body, item)


def relaxed(path: str, *, option: str) -> JsonPath:
    """Parse a path that may lack braces and the first dot, such as ``metadata.name``, as kubectl does for columns."""
    inner = path[1:-1] if path.startswith("{") and path.endswith("}") else path
    return JsonPath("{" + ("" if inner.startswith((".", "[")) else ".") + inner + "}", option=option)


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case None:
            return "null"
    return "a list" if isinstance(value, list) else "a map"


def _text(value: Any) -> str:
    return compact_json(value) if value is None or isinstance(value, dict | list) else go_text(value)


def _constant(text: str) -> Step:
    return lambda _: [text]


def _member(name: str) -> Step:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _wildcard(values: list[Any]) -> list[Any]:
    return [child for value in values for child in _children(value)]


def _descend(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        children = _children(value)
        if children:
            found += [value, *_descend(children)]
    return found
