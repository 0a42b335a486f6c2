"""Functions of Go templates for `go_template`: index, len, print, printf, comparisons; exists and base64decode are kubectl's."""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from .go_values import go_text, go_type

_VERB: Final = re.compile(r"%(?P<flags>[-+ 0#]*)(?P<width>\d*)(?P<precision>\.\d+)?(?P<verb>.)", re.S)
_KINDS: Final = {bool: "boolean", int: "int", float: "float", str: "text", type(None): "nil"}


class TemplateError(Exception):
    """A template cannot be parsed or executed; its text is the reason."""


def call(name: str, values: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return an expression that calls the function with these arguments. Raises TemplateError for an unknown name."""
    if name in ("and", "or"):
        if not values:
            raise TemplateError(f"{name} needs an argument")
        return _shortcut(name == "or", values)
    if name not in _FUNCTIONS:
        known = ", ".join(sorted((*_FUNCTIONS, "and", "or")))
        raise TemplateError(f"function {name!r} is not supported; supported are {known}")
    least, most, function = _FUNCTIONS[name]
    if not least <= len(values) <= most:
        raise TemplateError(f"{name} does not take {len(values)} arguments")
    return lambda scope: function(*(value(scope) for value in values))


def _shortcut(ends: bool, values: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the expression for ``or`` (`ends` True) or ``and``: later arguments are not evaluated without need."""

    def evaluate(scope: Any) -> Any:
        for value in values:
            result = value(scope)
            if bool(result) is ends:
                break
        return result

    return evaluate


def said(value: Any) -> str:
    """Return the beginning of a value's text in quotes, for messages."""
    text = go_text(value)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and type(key) is int:
            if not 0 <= key < len(value):
                raise TemplateError(f"index {key} of a list of {len(value)} is out of range")
            value = value[key]
        else:
            raise TemplateError(f"{said(value)} has no index {go_text(key)}")
    return value


def _len(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | dict):
        return len(value)
    raise TemplateError(f"{said(value)} has no length")


def _print(*values: Any) -> str:
    texts = ""
    for number, value in enumerate(values):
        needs_space = number and not isinstance(value, str) and not isinstance(values[number - 1], str)
        texts += (" " if needs_space else "") + go_text(value)
    return texts


def _println(*values: Any) -> str:
    return " ".join(map(go_text, values)) + "\n"


def _printf(template: Any, *values: Any) -> str:
    if not isinstance(template, str):
        raise TemplateError("the first argument of printf is a text")
    rest = list(values)

    def fill(match: re.Match[str]) -> str:
        if match["verb"] == "%":
            return "%"
        if not rest:
            return f"%!{match['verb']}(MISSING)"
        return _padded(match, _verb(match, rest.pop(0)))

    text = _VERB.sub(fill, template)
    extra = ", ".join(f"{go_type(value)}={go_text(value)}" for value in rest)
    return f"{text}%!(EXTRA {extra})" if rest else text


def _verb(match: re.Match[str], value: Any) -> str:
    verb, precision = match["verb"], match["precision"] or ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match verb:
        case "v":
            return go_text(value)
        case "s" if isinstance(value, str):
            return value[: int(precision[1:])] if precision else value
        case "s" if isinstance(value, list | dict):
            return go_text(value)
        case "q" if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        case "d" if isinstance(value, int) and is_number:
            return f"{value:+d}" if "+" in match["flags"] else str(value)
        case "x" if isinstance(value, str):
            return value.encode().hex()
        case "x" if isinstance(value, int) and is_number:
            return f"{value:x}"
        case "t" if isinstance(value, bool):
            return go_text(value)
        case "f" | "e" | "g" if isinstance(value, float):
            return f"{value:{precision}{verb}}" if precision or verb != "g" else go_text(value)
        case "s" | "q" | "d" | "x" | "t" | "f" | "e" | "g":
            return f"%!{verb}({'<nil>' if value is None else f'{go_type(value)}={go_text(value)}'})"
    raise TemplateError(f"printf does not support %{verb}; supported are %v %s %q %d %x %t %f %e %g")


def _padded(match: re.Match[str], text: str) -> str:
    width, flags = int(match["width"] or 0), match["flags"]
    if "-" in flags:
        return text.ljust(width)
    return text.zfill(width) if "0" in flags and match["verb"] in "dfegx" else text.rjust(width)


def _compared(compare: Callable[[Any, Any], bool], *, has_order: bool = False) -> Callable[..., bool]:
    def check(left: Any, *rights: Any) -> bool:
        for right in rights:
            kinds = [_KINDS.get(type(value)) for value in (left, right)]
            differ = kinds[0] != kinds[1] and (has_order or "nil" not in kinds)
            if None in kinds or differ or (has_order and kinds[0] in ("nil", "boolean")):
                raise TemplateError(f"cannot compare {said(left)} with {said(right)}")
        return any(compare(left, right) for right in rights)

    return check


def _exists(value: Any, *keys: Any) -> bool:
    try:
        return _index(value, *keys) is not None
    except TemplateError:
        return False


def _decode(text: Any) -> str:
    try:
        return base64.b64decode(str(text), validate=True).decode(errors="replace")
    except ValueError as error:  # wrong padding, or characters other than ASCII
        raise TemplateError(f"{text!r} is not base64: {error}") from None


_MANY: Final = 99
_FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., Any]]]] = {
    "base64decode": (1, 1, _decode),
    "eq": (2, _MANY, _compared(operator.eq)),
    "exists": (1, _MANY, _exists),
    "ge": (2, 2, _compared(operator.ge, has_order=True)),
    "gt": (2, 2, _compared(operator.gt, has_order=True)),
    "index": (1, _MANY, _index),
    "le": (2, 2, _compared(operator.le, has_order=True)),
    "len": (1, 1, _len),
    "lt": (2, 2, _compared(operator.lt, has_order=True)),
    "ne": (2, 2, _compared(operator.ne)),
    "not": (1, 1, operator.not_),
    "print": (0, _MANY, _print),
    "printf": (1, _MANY, _printf),
    "println": (0, _MANY, _println),
}
"""Fewest and most arguments, and the function."""
