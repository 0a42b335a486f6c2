"""Values of JSON as Go programs print them, and Go's string literals: what jsonpath and Go templates have in common."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.S
)
_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquote(literal: str) -> str:
    """Return the text of a Go string literal with its quotes; one in backquotes has no escapes."""
    inner = literal[1:-1]
    return inner if literal[0] == "`" else _ESCAPE.sub(_unescape, inner)


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        return chr(int(digits, 16))
    return chr(int(match[4], 8)) if match[4] else _LETTERS.get(match[5], match[5])


def compact_json(value: Any) -> str:
    """Format a value as Go's json.Marshal does: sorted keys, no spaces, and no characters that have a meaning in HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def go_text(value: Any) -> str:
    """Format a value as Go's verb ``%v``, such as ``map[a:1 b:[x y]]``."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case float():
            return _float(value)
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
        case _:
            return str(value)


def _float(value: float) -> str:
    """Format the shortest digits; with an exponent below 1e-4 and from 1e21 on, as Go's verb ``%v``."""
    digits, _, exponent = f"{value!r}".partition("e")
    if exponent:
        sign, power = exponent[0] if exponent[0] == "-" else "+", exponent.lstrip("+-").zfill(2)
        return f"{digits}e{sign}{power}" if sign == "-" or int(power) >= 21 else f"{value:.0f}"
    return digits.removesuffix(".0")


def go_type(value: Any) -> str:
    """Return the name of a value's type in Go, for messages."""
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")
