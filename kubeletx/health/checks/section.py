"""Section ``checks`` of the configuration: a list of checks, each with its kind."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..model import CheckLevel, Complain
from . import agents, network, node
from .base import LookFacts, NodeCheck
from .settling import CheckOutcome

MAX_CHECKS: Final = 100
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
    if section is None:
        return {}
    if not isinstance(section, list):
        complain(f"checks: a list of checks is expected, found {str(section)[:40]!r}; no check is made")
        return {}
    if len(section) > MAX_CHECKS:
        complain(f"checks: {len(section)} entries; the first {MAX_CHECKS} count")
    checks: dict[str, NodeCheck] = {}
    for index, entry in enumerate(section[:MAX_CHECKS]):
        path = f"checks[{index}]"
        try:
            name, check = _read(entry)
            if name in checks:
                raise ValueError(f"the name {name!r} is taken; set name to another one")
        except ValueError as error:
            problem = f"{path}: {str(error).replace(' - at `$.', ' - at `')}"
            complain(f"{problem}; its result is unknown")
            name, check = path, BrokenCheck(level=_level(entry), failures=1, problem=problem)
        checks[name] = check
    return checks


def _read(entry: Any) -> tuple[str, NodeCheck]:
    word = entry.get("kind") if isinstance(entry, dict) else None
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise ValueError(f"kind {str(word)[:40]!r} is not one of {', '.join(KINDS)}")
    try:
        check = msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        fields = [field.name for field in msgspec.structs.fields(kind)]
        fix = f"; the fields of {word} are {', '.join(fields)}" if "unknown field" in str(error) else ""
        raise ValueError(f"{error}{fix}") from None
    return check.name or str(word), check


def _level(entry: Any) -> CheckLevel:
    """Return the level of a broken entry; without a valid one it is wanted, as in an entry without a level."""
    word = entry.get("level") if isinstance(entry, dict) else None
    return CheckLevel(word) if isinstance(word, str) and word in set(CheckLevel) else CheckLevel.WANTED
