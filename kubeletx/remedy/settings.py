"""RemedySettings of node remedy: ConfigMap ``remedy-settings``, key ``settings.properties``. Pure.

Each setting is checked by itself: one that is wrong keeps its last good value, and the others count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text.duration import format_duration, parse_duration

from .model import RemedySettings
from .properties import LABEL_KEY, parse_properties

SETTINGS_MAP: Final = "remedy-settings"
SETTINGS_KEY: Final = "settings.properties"
_DAY: Final = 86400.0


class _Limits(NamedTuple):
    least: float
    most: float


_LIMITS: Final[Mapping[str, _Limits]] = {
    "max_agents": _Limits(1, 1000),
    "pods_per_minute": _Limits(0, 100_000),
    "alarm_count": _Limits(1, 10_000),
    "alarm_period": _Limits(1, 366 * _DAY),
}
"""Limits other than 0 to 100, and for times 0 to one day."""
_AMOUNT: Final = re.compile(r"[0-9]{1,6}|(100|[0-9]{1,2})%")
_WORDS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def read_settings(
    data: Mapping[str, str], last: RemedySettings
) -> tuple[RemedySettings, list[InvalidConfig]]:
    """Return the settings of the ConfigMap's data, and what is wrong with it.

    A missing setting has its default; a wrong one, or all if the text cannot be read, have the value in `last`.
    """
    document = f"ConfigMap {SETTINGS_MAP}"
    problems = [
        InvalidConfig(obj=document, field=key, problem="this key is not read", fix=f"write {SETTINGS_KEY}")
        for key in sorted(data.keys() - {SETTINGS_KEY})
    ]
    try:
        properties = parse_properties(data.get(SETTINGS_KEY, ""), document, SETTINGS_KEY)
    except InvalidConfig as error:
        return last, [*problems, error]
    values: dict[str, Any] = {}
    known = {field.name: field.type for field in msgspec.structs.fields(RemedySettings)}
    for name, text in properties.items():
        try:
            if name not in known:
                raise ValueError("is not a setting; remove it or write one of: " + ", ".join(sorted(known)))
            values[name] = _value(name, known[name], text)
        except ValueError as error:
            problem, _, fix = str(error).partition("; ")
            field = f"{SETTINGS_KEY} {name}"
            problems.append(
                InvalidConfig(obj=document, field=field, problem=f"{text[:60]!r} {problem}", fix=fix)
            )
            if name in known:
                values[name] = getattr(last, name)
    return RemedySettings(**values), problems


def _value(name: str, type_: Any, text: str) -> Any:
    """Raises ValueError with the problem and, after a semicolon, what to do."""
    if type_ is bool:
        if text.lower() not in _WORDS:
            raise ValueError("is not true or false; write true or false")
        return _WORDS[text.lower()]
    if type_ is str:
        if name == "max_unhealthy" and not _AMOUNT.fullmatch(text):
            raise ValueError("is not a number or a percentage; write 2 or 40%")
        if name == "domain_label" and text and not LABEL_KEY.fullmatch(text):
            raise ValueError("is not a label's key; write topology.kubernetes.io/zone")
        return text
    is_number = text.isascii() and text.isdigit() and len(text) <= 12
    if type_ is int and not is_number:
        raise ValueError("is not a whole number; write one from 0 on")
    value = int(text) if is_number else parse_duration(text)
    limits = _LIMITS.get(name) or _Limits(0, 100 if type_ is int else _DAY)
    if not limits.least <= value <= limits.most:
        shown = [f"{one:g}" if type_ is int else format_duration(one) for one in limits]
        raise ValueError(f"is out of range; write {shown[0]} to {shown[1]}")
    return type_(value)
