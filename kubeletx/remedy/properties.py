"""Properties: lines of ``key=value``, as the ConfigMaps of node remedy hold them. Pure.

A value is everything after the first ``=``, without blanks at its ends; a pair of double quotes around it is removed, so that
blanks can be kept. Empty lines and lines that begin with ``#`` are skipped. As for a fence agent, ``-`` and ``_`` in keys are
equal; the result has ``_``. ``KEY@url`` is the URL from which the value of KEY is read when it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kubeletx.api import InvalidConfig

URL: Final = "@url"
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(@url)?")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
LABEL_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_URL: Final = re.compile(r"https?://[^\s/]\S*")

_SECRET_NAME: Final = re.compile(r"pass(w|phrase|$)|secret|token|community|access_key", re.IGNORECASE)
_NO_SECRET: Final = re.compile(r"(_(script|path|file)|@url)$", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Return True if a parameter of this name holds a secret. With ``@url`` it names the place of one."""
    return bool(_SECRET_NAME.search(key)) and not _NO_SECRET.search(key)


def parse_properties(text: str, document: str, field: str) -> dict[str, str]:
    """Return the properties in their order. `field`: path of the text in the document, for errors. Raises InvalidConfig."""
    found: dict[str, str] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{field} line {number}"
        key, equals, value = line.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            shown = f"key {key[:40]!r} is not a name" if equals else "has no '='"  # a value may be a secret
            raise InvalidConfig(obj=document, field=where, problem=shown, fix="write KEY=VALUE")
        key, value = key.replace("-", "_"), value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if _CONTROL.search(value):
            problem = f"the value of {key} has a control character"
            raise InvalidConfig(obj=document, field=where, problem=problem, fix="remove it")
        if key.endswith(URL) and not _URL.fullmatch(value):
            problem = f"the value of {key} is not an http or https URL"
            raise InvalidConfig(obj=document, field=where, problem=problem, fix="write https://HOST/PATH")
        if key in found or other_form(key) in found:
            problem = f"{key} is set twice"
            raise InvalidConfig(obj=document, field=where, problem=problem, fix="keep one of the lines")
        found[key] = value
    return found


def other_form(key: str) -> str:
    """Return ``KEY@url`` for KEY, and KEY for ``KEY@url``."""
    return key.removesuffix(URL) if key.endswith(URL) else key + URL


def overlay(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return all properties; a later layer wins, and its KEY also replaces an earlier ``KEY@url`` and the reverse."""
    merged: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.items():
            merged.pop(other_form(key), None)
            merged[key] = value
    return merged


def parse_selector(text: str) -> dict[str, str]:
    """Return the labels that ``KEY=VALUE,KEY=VALUE`` asks for. Raises ValueError."""
    wanted: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value) or key in wanted:
            raise ValueError(f"{part.strip()!r} is not KEY=VALUE with one value for each key")
        wanted[key] = value
    return wanted


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return True if the labels have all wanted values."""
    return all(labels.get(key) == value for key, value in wanted.items())
