"""Checks of options that only some backends have. Values become arguments of programs, so their syntax is narrow."""

from __future__ import annotations

import re
from typing import Final

from kubeletx.api import InvalidConfig

from ..values import StorageVolume

WORD: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z._]{0,252}")
HOST: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z.]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]")
HOSTS: Final = re.compile(r"[0-9A-Za-z\[][-0-9A-Za-z.:,\[\]/]{0,1000}")
PATH: Final = re.compile(r"(/[0-9A-Za-z_][-0-9A-Za-z._]*){1,64}|/")
PORT: Final = re.compile(r"[1-9][0-9]{0,4}")


def parameter(volume: StorageVolume, name: str, pattern: re.Pattern[str], default: str | None = None) -> str:
    """Return the option `name` of the volume. Raises InvalidConfig if it does not match `pattern`.

    `default` None: the option is required.
    """
    value = volume.parameters.get(name, default)
    if value is None:
        raise _bad(volume, name, "is missing", f"add it; backend {volume.backend} needs it")
    check_word(volume, name, value, pattern)
    return value


def check_word(volume: StorageVolume, name: str, value: str, pattern: re.Pattern[str] = WORD) -> None:
    """Raise InvalidConfig if the value of option `name` does not match `pattern`."""
    if not pattern.fullmatch(value):
        raise _bad(volume, name, f"{value!r} is invalid", f"it must match {pattern.pattern}")


def _bad(volume: StorageVolume, name: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=f"volume {volume.name}", field=f"option {name}", problem=problem, fix=fix)
