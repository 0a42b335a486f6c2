"""Decodes the section ``kubeletx.plugins`` of the configuration: the settings of each plugin, by the name it registered.

Every wrong section is named in one error, so that an operator can correct all of them at once. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig

from ..plugins.failures import failure_text, package_of
from .problems import raise_all

Declared = Mapping[str, type[Any] | None]
"""Settings type by registered name; None: without settings."""

_MISSING: Final = re.compile(r"missing required field `([^`]+)`(?: - at `\$([^`]*)`)?")


def decode_sections(
    sections: Mapping[str, Any], declared: Declared, *, may_come: Callable[[str], bool], origin: str = ""
) -> dict[str, Any]:
    """Decode each section with its settings type; a name without a section gets the defaults of its type.

    `may_come`: returns True for a name that a plugin may register which is not loaded; its section is left out.
    `origin`: the file with the sections, for messages. Raises one InvalidConfig that names every wrong section.
    """
    errors: list[InvalidConfig] = []
    decoded: dict[str, Any] = {}
    for name in sections:
        if declared.get(name) is None and not may_come(name):
            errors.append(_bad_section(origin, name, *_why_not(name, declared)))
    for name, settings in declared.items():
        if settings is None:
            continue
        try:
            decoded[name] = _decode(settings, sections.get(name) or {})
        except msgspec.ValidationError as error:
            errors.append(_bad_section(origin, name, str(error), _remedy(name, str(error))))
        except BaseException as error:  # noqa: BLE001 - the settings' __post_init__ is code of the plugin
            words = failure_text(error, package_of(settings.__module__))
            errors.append(_bad_section(origin, name, words, "correct the value, or repair the plugin"))
    raise_all(errors)
    return decoded


def _why_not(name: str, declared: Declared) -> tuple[str, str]:
    if name in declared:
        return f"{name!r} has no settings", "remove the section"
    known = (
        ", ".join(sorted(section for section, settings in declared.items() if settings is not None)) or "none"
    )
    return f"no plugin registers {name!r}", f"install it or remove the section; known: {known}"


def _decode(settings: type[Any], section: Any) -> Any:
    is_struct = isinstance(settings, type) and issubclass(settings, msgspec.Struct)  # a dict for programs
    if is_struct and isinstance(section, Mapping):
        known = {field.encode_name for field in msgspec.structs.fields(settings)}
        for name in section:
            if name not in known:
                raise msgspec.ValidationError(
                    f"unknown field {name!r}; known: {', '.join(sorted(known)) or 'none'}"
                )
    return msgspec.convert(section, settings)


def _remedy(name: str, problem: str) -> str:
    match = _MISSING.search(problem)
    if match is None:
        return "correct the value"
    where = f"kubeletx.plugins.{name}{match[2] or ''}"
    return f"write `{match[1]}: VALUE` in section {where} of the configuration file"


def _bad_section(origin: str, name: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=origin, field=f"kubeletx.plugins.{name}", problem=problem, fix=fix)
