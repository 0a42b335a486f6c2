"""Output format ``jsonpath``: a template with expressions in braces, as kubectl understands it.

Text outside braces is printed as it is. An expression is a sequence of steps. Each step makes a list of values of the
values before it, so that a field that is not there gives an empty list, which is printed as nothing. Several values are
printed with a space between them, lists and maps as JSON. Syntax: fields ``.a.b`` (``\\.`` is a dot in a name), ``['a']``,
``.*``, ``[0]``, ``[-1]``, ``[1:3]``, ``[::2]``, ``[*]``, ``[0,2]``, ``['a','b']``, filters ``[?(@.a=="b")]`` with == != < <=
> >= or without a comparison, ``..a``, ``"text\\n"``, and ``{range EXPRESSION}...{end}``.
Source: client-go, util/jsonpath; differences between versions of kubectl are decided as in 1.32.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

from .go_values import compact_json, go_text, unquote

Step = Callable[[list[Any]], list[Any]]

_FIELD: Final = re.compile(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_QUOTED: Final = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")
_SLICE: Final = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")
_FILTER: Final = re.compile(r"\[\?\(((?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\"')])*)\)\]")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=~]+)(.+)", re.S)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Action(NamedTuple):
    """One expression, or text between expressions. `word`: range, end, or empty."""

    steps: tuple[Step, ...]
    word: str = ""

    def values(self, value: Any) -> list[Any]:
        values = [value]
        for step in self.steps:
            values = step(values)
        return values


class JsonPath:
    """A parsed template. The constructor raises InvalidConfig, which names the error, for a template with one."""

    def __init__(self, template: str, *, option: str = "-o jsonpath") -> None:
        self._template, self._option, self._position = template, option, 0
        self._actions = list(self._parse())
        depth = 0
        for action in self._actions:
            depth += {"range": 1, "end": -1}.get(action.word, 0)
            if depth < 0:
                raise self._error("{end} has no {range} before it")

    def find(self, value: Any) -> list[list[Any]]:
        """Return the values of each expression, in order. `value`: as decoded from JSON. Raises InvalidConfig."""
        results: list[list[Any]] = []
        self._run(0, value, results)
        return results

    def print(self, value: Any) -> str:
        """Return what kubectl prints for an object. `value`: as decoded from JSON. Raises InvalidConfig."""
        return "".join(" ".join(map(_text, values)) for values in self.find(value))

    def _run(self, index: int, value: Any, results: list[list[Any]]) -> None:
        """Evaluate the actions from `index` until the end of their range."""
        while index < len(self._actions):
            action = self._actions[index]
            if action.word == "end":
                return
            found = action.values(value)
            if action.word == "range":
                for item in found:
                    self._run(index + 1, item, results)
                index = self._end_of(index)
            else:
                results.append(found)
            index += 1

    def _end_of(self, start: int) -> int:
        depth = 0
        for index in range(start, len(self._actions)):
            depth += {"range": 1, "end": -1}.get(self._actions[index].word, 0)
            if depth == 0:
                return index
        return len(self._actions)

    # --- parser ---

    def _parse(self) -> Iterator[_Action]:
        template = self._template
        while self._position < len(template):
            brace = template.find("{", self._position)
            text = template[self._position : brace if brace >= 0 else None]
            if text:
                yield _Action((_constant(text),))
            if brace < 0:
                return
            self._position = brace + 1
            yield self._action()

    def _action(self) -> _Action:
        steps: list[Step] = []
        word = ""
        while not self._take("}"):
            if self._position >= len(self._template):
                raise self._error("an expression is not closed", "close it with }")
            name = re.compile(r"(range|end)(?![\w-])").match(self._template, self._position)
            if name is not None:
                word, self._position = name[1], name.end()
            else:
                self._step(steps)
        return _Action(tuple(steps), word)

    def _take(self, text: str) -> bool:
        found = self._template.startswith(text, self._position)
        self._position += len(text) if found else 0
        return found

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._template, self._position)
        if match is not None:
            self._position = match.end()
        return match

    def _step(self, steps: list[Step]) -> None:
        """Parse one step at the present position and append it."""
        rest = self._template[self._position :]
        if rest.startswith("[?("):
            match = self._match(_FILTER)
            if match is None:
                raise self._error("a filter is not closed", "write [?(@.FIELD==VALUE)]")
            steps.append(self._filter(match[1]))
        elif self._take(".."):
            steps.append(_descend)
            if rest[2:3].isalnum() or rest[2:3] == "_":
                steps.append(self._field())
        elif self._take("."):
            steps.append(self._field())
        elif self._take("["):
            end = self._template.find("]", self._position)
            if end < 0:
                raise self._error("a [ is not closed", "close it with ]")
            inner, self._position = self._template[self._position : end], end + 1
            steps.append(self._union(inner))
        elif rest[0] in "\"'":
            quoted = self._match(_QUOTED)
            if quoted is None:
                raise self._error("a text is not closed", f"close it with {rest[0]}")
            steps.append(_constant(unquote(quoted[0])))
        elif number := self._match(_NUMBER):
            value = float(number[0]) if "." in number[0] else int(number[0])
            steps.append(lambda values: [value] * len(values))
        elif boolean := self._match(re.compile(r"(true|false)\b")):
            steps.append(lambda values: [boolean[0] == "true"] * len(values))
        elif rest[0] in " @$":
            self._position += 1
        else:
            word = re.match(r"[\w-]*", rest)
            found = word[0] if word is not None and word[0] else rest[0]
            raise self._error(
                f"{found!r} is not understood", "begin a field with a dot, as in {.metadata.name}"
            )

    def _field(self) -> Step:
        match = self._match(_FIELD)
        name = match[0] if match is not None else ""
        return _wildcard if name == "*" else _member(re.sub(r"\\(.)", r"\1", name))

    def _union(self, text: str) -> Step:
        """Return the step of the text between brackets: an index, a slice, a name, or several of them."""
        parts = [self._element(part.strip() if "," in text else part) for part in text.split(",")]
        return (
            parts[0]
            if len(parts) == 1
            else lambda values: [value for part in parts for value in part(values)]
        )

    def _element(self, text: str) -> Step:
        if len(text) > 1 and text[0] == text[-1] == "'":
            inner = JsonPath("{." + text[1:-1] + "}", option=self._option)
            return lambda values: [found for value in values for found in inner._actions[0].values(value)]
        match = _SLICE.fullmatch(":" if text == "*" else text)
        if match is None:
            raise self._error(f"[{text}] is no index", "write [0], [1:3], [*] or ['name']")
        return self._slice(match)

    def _slice(self, match: re.Match[str]) -> Step:
        bounds = [(text or "").removeprefix(":") for text in match.groups()]
        start, end, step = (int(text) if text else None for text in bounds)
        is_index = match[2] is None

        def step_of(values: list[Any]) -> list[Any]:
            found: list[Any] = []
            for value in values:
                if value is None:
                    continue
                if not isinstance(value, list):
                    raise self._error(f"{_kind(value)} is no list", "take a field of it")
                count = len(value)
                first = (start or 0) + (count if (start or 0) < 0 else 0)
                last = first + 1 if is_index else count if end is None else end + (count if end < 0 else 0)
                for bound, most in ((first, count - 1), (last - 1, count - 1)):
                    if first != last and not 0 <= bound <= most:
                        raise self._error(f"index {bound} of a list of {count} is out of range")
                if first > last:
                    raise self._error(f"slice begins at {first}, after its end {last}")
                found += value[first : last : step or 1]
            return found

        return step_of

    def _filter(self, text: str) -> Step:
        comparison = _COMPARISON.fullmatch(text)
        left = JsonPath("{" + (comparison[1] if comparison else text) + "}", option=self._option)._actions[0]
        right: _Action | None = None
        compare = operator.eq
        if comparison is not None:
            if comparison[2] not in _COMPARE:
                raise self._error(f"{comparison[2]} is no comparison", f"use one of {' '.join(_COMPARE)}")
            compare = _COMPARE[comparison[2]]
            right = JsonPath("{" + comparison[3] + "}", option=self._option)._actions[0]

        def passes(item: Any) -> bool:
            lefts = left.values(item)
            if right is None or not lefts:
                return bool(lefts)
            rights = right.values(item)
            if len(lefts) > 1 or len(rights) > 1:
                raise self._error("a filter compares several values", "compare one")
            return bool(rights) and self._compare(compare, lefts[0], rights[0])

        def step(values: list[Any]) -> list[Any]:
            for value in values:
                if not isinstance(value, list):
                    raise self._error(f"{_kind(value)} is no list and cannot be filtered")
            return [item for value in values for item in value if passes(item)]

        return step

    def _compare(self, compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
        has_order = compare not in (operator.eq, operator.ne)
        kinds = {_kind(left), _kind(right)}
        if (
            len(kinds) > 1
            or not kinds < {"a number", "a text", "a boolean"}
            or (has_order and "a boolean" in kinds)
        ):
            raise self._error(f"cannot compare {_kind(left)} with {_kind(right)}")
        return compare(left, right)

    def _error(self, problem: str, fix: str = "correct the expression") -> InvalidConfig:
        return InvalidConfig(field=self._option, problem=f"{self._template!r}: {problem}", fix=fix)


def relaxed(path: str, *, option: str) -> JsonPath:
    """Parse a path that may lack braces and the first dot, such as ``metadata.name``, as kubectl does for columns."""
    inner = path[1:-1] if path.startswith("{") and path.endswith("}") else path
    return JsonPath("{" + ("" if inner.startswith((".", "[")) else ".") + inner + "}", option=option)


def _kind(value: Any) -> str:
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a map",
    }
    return kinds.get(type(value), "null")


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
