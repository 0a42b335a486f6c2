"""Rewords msgspec's conversion errors for authors of manifests: field path, found value, what to write instead."""

from __future__ import annotations

import re
from typing import Any, Final

_AT: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*)`$")
_EXPECTED: Final = re.compile(r"Expected `(?P<expected>[^`]+)`(?:, got `(?P<got>[^`]+)`)?")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_DIGITS: Final = re.compile(r"-?[0-9]{19,}")
_WORDS: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "datetime": "a time",
}
_TYPES: Final[dict[str, type]] = {"str": str, "int": int, "bool": bool, "object": dict, "array": list}


def explain(message: str, raw: Any) -> tuple[str, str, str]:
    """Convert an error message of msgspec to a field path, the problem with the found value, and a fix.

    `raw`: the value that msgspec could not convert.
    """
    at = _AT.search(message)
    text = message[: at.start()] if at else message
    expected = _EXPECTED.search(text)
    words = [word for word in expected["expected"].split(" | ") if word != "null"] if expected else []
    path, value = _follow(at["path"] if at else "", raw, words)
    if missing := _MISSING.search(text):
        return f"{path}.{missing['name']}".lstrip("."), "is missing", "add it"
    if not words or (expected and not expected["got"]):
        return path, f"{_show(value)}: {text[:1].lower()}{text[1:]}", _fix(words, value)
    if words == ["int"] and isinstance(value, str) and _DIGITS.fullmatch(value):
        return path, f"{_show(value)} is too large", "write a smaller number"
    wanted = " or ".join(_WORDS.get(word, word) for word in words)
    return path, f"{_show(value)} is not {wanted}", _fix(words, value)


def _follow(path: str, raw: Any, words: list[str]) -> tuple[str, Any]:
    """Return the field path as an author writes it, and the value found there.

    `path`: the path in msgspec's notation, which does not name the keys of a map: there, the first entry with
    a wrong type is taken. `words`: types that msgspec expected.
    """
    here, written = raw, ""
    for step in _STEP.finditer(path):
        if step["name"]:
            written += f".{step['name']}"
            here = here.get(step["name"]) if isinstance(here, dict) else None
        elif step["index"]:
            written += f"[{step['index']}]"
            index = int(step["index"])
            here = here[index] if isinstance(here, list) and index < len(here) else None
        else:
            types = tuple(_TYPES[word] for word in words if word in _TYPES)
            entries = here.items() if isinstance(here, dict) else ()
            key, here = next(((k, v) for k, v in entries if not isinstance(v, types)), ("...", None))
            written += f"[{key}]"
    return written.lstrip("."), here


def _show(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = repr(value)
            return text if len(text) <= 60 else f"{text[:57]}..."


def _fix(words: list[str], value: Any) -> str:
    if "str" in words and isinstance(value, bool | int | float):
        return "put the value in quotes"
    if "int" in words or "bool" in words:
        word = "a whole number" if "int" in words else "true or false"
        return f"write {word} without quotes" if isinstance(value, str) else f"write {word}"
    if "object" in words:
        return "write key: value pairs"
    if "array" in words:
        return "start each entry with '- '"
    if "datetime" in words:
        return "write a time such as 2026-01-31T12:00:00Z"
    return "correct the value"
