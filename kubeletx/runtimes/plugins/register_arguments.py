"""Checks of the arguments with which a plugin calls the `register` function of a hook.

A wrong argument raises InvalidConfig that names the plugin with its distribution and version, the argument, what was
found and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig

from .identity import PluginIdentity

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class RegisterArguments:
    """Checks the arguments of one call of `register`. `what`: what is registered, such as ``runtime kind``."""

    def __init__(self, plugin: PluginIdentity, what: str) -> None:
        self.plugin = plugin
        self._what = what

    def name(self, value: object) -> str:
        """Return the name of what is registered, which later messages of this object contain."""
        if not isinstance(value, str) or not NAME.fullmatch(value):
            raise self.wrong(
                "name", f"{value!r} is not a name", "use up to 63 lower-case letters, digits and dashes"
            )
        self._what = f"{self._what} {value!r}"
        return value

    def factory(self, value: object) -> None:
        if not callable(value):
            raise self.wrong(
                "factory",
                f"{_found(value)} cannot be called",
                "register a class or a function that makes the object",
            )

    def words(self, argument: str, value: object, *, required: bool = False) -> tuple[str, ...]:
        """Return a tuple of strings that are not empty; a list or set of them is accepted too."""
        if isinstance(value, str):
            raise self.wrong(argument, f"{value!r} is a string", f"write the tuple ({value!r},)")
        if not isinstance(value, tuple | list | set | frozenset):
            raise self.wrong(argument, f"{_found(value)} is not a tuple of strings", 'write such as ("one",)')
        for word in value:
            if not isinstance(word, str) or not word:
                raise self.wrong(argument, f"it contains {_found(word)}", "write strings that are not empty")
        if required and not value:
            raise self.wrong(argument, "it is empty", "name at least one")
        return tuple(sorted(value)) if isinstance(value, set | frozenset) else tuple(value)

    def boolean(self, argument: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(argument, f"{_found(value)} is not True or False", "write True or False")
        return value

    def text(self, argument: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.wrong(argument, f"{_found(value)} is not a string", "write a string")
        return value

    def seconds(self, argument: str, value: object, *, least: float) -> float:
        """Return a finite number of seconds that is at least `least`."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(argument, f"{_found(value)} is not a number", f"write {least:g} or more")
        if not least <= value < float("inf"):
            problem = "is less than a second" if least == 1 and not value >= 1 else "is out of range"
            raise self.wrong(argument, f"{value!r} {problem}", f"use {least} or more")
        return float(value)

    def settings(self, value: object) -> type[Any] | None:
        """Return the class of the settings, a msgspec Struct; None if there is none."""
        if value is None:
            return None
        if not isinstance(value, type) or not issubclass(value, msgspec.Struct):
            raise self.wrong(
                "settings",
                f"{_found(value)} is not a msgspec Struct class",
                "write class Settings(msgspec.Struct) and register the class",
            )
        return value

    def no_more(self, given: Mapping[str, object], known: Iterable[str]) -> None:
        """Check that there are no unknown keyword arguments. `given`: those; `known`: the names that exist."""
        for name in given:
            raise self.wrong(
                name,
                f"unexpected keyword argument {name!r}{did_you_mean(name, known)}",
                f"known arguments: {', '.join(known)}",
            )

    def wrong(self, argument: str, problem: str, fix: str) -> InvalidConfig:
        return InvalidConfig(obj=str(self.plugin), field=f"{self._what} {argument}", problem=problem, fix=fix)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean x?`` with the most similar known word, or an empty text if none is similar."""
    import difflib  # here: only a typo needs its 0.5 MiB

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def _found(value: object) -> str:
    """Return a short description of a wrong value; its own `__repr__` is used only for plain values."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)[:80]
    if isinstance(value, type):
        return f"class {value.__name__}"
    return f"an object of type {type(value).__name__}"
