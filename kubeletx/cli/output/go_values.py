"""Values of JSON as Go programs print them, and Go's string literals: what jsonpath and Go templates have in common."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.S)
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t"}


def unquote(literal: str) -> str:
    """Return the text of a string literal with its quotes; one in backquotes has no escapes."""
    inner = literal[1:-1]
    return inner if literal[0] == "`" else _ESCAPE.sub(_unescape, inner)


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _LETTERS.get(match[2], match[2])


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
            return str(value).removesuffix(".0")
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
        case _:
            return str(value)
