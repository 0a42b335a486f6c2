"""Rules for the version of kubeletx that a plugin is made for, and sentences for a plugin that does not fit. Pure.

A plugin says it with the requirement ``kubeletx`` of its distribution, such as ``kubeletx>=0.1,<0.2``. pip checks that
only while it installs the plugin, so the agent checks it again when it loads the plugin
(docs/decisions/0012-plugin-versions.md).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

HOST: Final = "kubeletx"

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)@]*)\)?\s*(;.*)?")
_CLAUSE: Final = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_MISSING: Final = re.compile(
    r"cannot import name '(\w+)' from '([\w.]+)'|module '([\w.]+)' has no attribute '(\w+)'"
)
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")

Numbers = tuple[int, ...]


def required_versions(requirements: Iterable[str] | None) -> str:
    """Return the versions of kubeletx that a distribution requires, such as ``>=0.1,<0.2``; empty if it requires none.

    `requirements`: of the distribution's metadata; None: it has no such metadata. Requirements with a condition
    (extras, markers) are ignored.
    """
    for requirement in requirements or ():
        match = _REQUIREMENT.fullmatch(requirement)
        if match is not None and match[1].lower() == HOST and not match[3]:
            return ",".join(sorted((clause.replace(" ", "") for clause in match[2].split(",")), reverse=True))
    return ""


def is_in_range(version: str, versions: str) -> bool:
    """Return whether `version` satisfies every clause of `versions`, such as ``>=0.1,<0.2``.

    Clauses in an unknown form are ignored. Only the numbers at the start of `version` count, so a pre-release of 0.2 is
    0.2. Source: the version specifiers of Python packages (PEP 440).
    """
    own = _numbers(version)
    return all(
        _holds(match[1], own, _numbers(match[2]), bool(match[3]))
        for clause in versions.split(",")
        if (match := _CLAUSE.fullmatch(clause.strip())) is not None
    )


def range_problem(plugin: str, versions: str, running: str) -> str:
    """Return why this version of kubeletx must not load the plugin; empty if it may.

    `plugin`: the plugin for people. `versions`: which it requires. `running`: version of kubeletx.
    """
    if is_in_range(running, versions):
        return ""
    return f"{plugin} is made for kubeletx {versions}, and this is kubeletx {running}; install a version of it for {running}"


def missing_name_problem(
    error: BaseException, plugin: str, versions: str, running: str, names: Callable[[str], Iterable[str]]
) -> str:
    """Return the sentence for a plugin that uses a name of kubeletx that does not exist; empty for other errors.

    `error`: raised by the import of the plugin. `names`: returns the names of a public module, for a suggestion.
    """
    if not isinstance(error, ImportError | AttributeError):
        return ""
    text = str(error)
    if (match := _MISSING.search(text)) is not None:
        name, module = (match[1], match[2]) if match[1] else (match[4], match[3])
    elif (match := _NO_MODULE.search(text)) is not None:
        module, _, name = match[1].rpartition(".")
    else:
        return ""
    if module != HOST and not module.startswith(f"{HOST}."):
        return ""
    made_for = (
        f"it was made for kubeletx {versions}"
        if versions
        else "it does not say for which kubeletx it was made"
    )
    return (
        f"{plugin} needs a name that {module} does not have: {name}{_suggestion(name, names(module))}; "
        f"{made_for}, and this is kubeletx {running}; install a version of it for {running}, or correct the name"
    )


def _suggestion(name: str, known: Iterable[str]) -> str:
    import difflib  # here: only a wrong name needs its 0.5 MiB

    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _numbers(version: str) -> Numbers:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _holds(sign: str, own: Numbers, other: Numbers, is_prefix: bool) -> bool:
    """Return whether ``own SIGN other`` holds; `is_prefix`: `other` ends with ``.*``."""
    length = max(len(own), len(other))
    one, two = (numbers + (0,) * (length - len(numbers)) for numbers in (own, other))
    if sign in _ORDER:
        return _ORDER[sign](one, two)
    if sign == "~=":
        return one >= two and one[: len(other) - 1] == other[:-1]
    is_equal = one[: len(other)] == other if is_prefix else one == two
    return is_equal is (sign != "!=")


_ORDER: Final[Mapping[str, Callable[[Numbers, Numbers], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
