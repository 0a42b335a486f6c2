"""Section ``checks`` of the configuration: a list of checks, each with its kind."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..config import convert, read_entries
from ..model import CheckLevel, Complain
from . import agents, network, node
from .base import CheckOutcome, LookFacts, NodeCheck

KINDS: Final[dict[str, type[NodeCheck]]] = {
    str(kind.__struct_config__.tag): kind
    for module in (agents, network, node)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, NodeCheck) and kind is not NodeCheck
}
"""Kinds of checks by their names in the configuration."""


class BrokenCheck(NodeCheck, frozen=True, kw_only=True, tag="broken"):
    """An entry that cannot be understood. It stays unknown, so that no image is committed without a required check."""

    problem: str

    def look(self, facts: LookFacts) -> CheckOutcome:
        return CheckOutcome(None, self.problem)


def read_checks(section: Any, complain: Complain) -> dict[str, NodeCheck]:
    """Return the checks by name, in the order of the section. `complain` gets a line for each that is wrong."""
    checks: dict[str, NodeCheck] = {}
    for path, entry in read_entries(section, "checks", complain):
        try:
            name, check = _read(entry, path)
            if name in checks:
                raise ValueError(f"{path}: the name {name!r} is taken; set name to another one")
        except ValueError as error:
            complain(f"{error}; its result is unknown")
            name, check = path, BrokenCheck(level=_level(entry), failures=1, problem=str(error))
        checks[name] = check
    return checks


def _read(entry: Any, path: str) -> tuple[str, NodeCheck]:
    word = entry.get("kind") if isinstance(entry, dict) else None
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise ValueError(f"{path}: kind {str(word)[:40]!r} is not one of {', '.join(KINDS)}")
    try:
        check = convert(entry, kind, path)
    except ValueError as error:
        fields = [field.name for field in msgspec.structs.fields(kind)]
        fix = f"; the fields of {word} are {', '.join(fields)}" if "unknown field" in str(error) else ""
        raise ValueError(f"{error}{fix}") from None
    return check.name or str(word), check


def _level(entry: Any) -> CheckLevel:
    """Return the level of a broken entry; without a valid one it is wanted, as in an entry without a level."""
    word = entry.get("level") if isinstance(entry, dict) else None
    return CheckLevel(word) if isinstance(word, str) and word in set(CheckLevel) else CheckLevel.WANTED
