"""Selectors as kubectl takes them: ``a=b,c!=d,e in (f,g),h notin (i),j,!k`` for labels, ``a.b=c,d!=e`` for fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<gone>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,()!=]*)"
    r"|\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)


_METADATA: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final = {
    "pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
    ),
    "event": (
        *(
            f"involvedObject.{name}"
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
        ),
        "reason",
        "type",
        "reportingComponent",
    ),
    "secret": ("type",),
}
"""Fields besides the object's name and namespace, by kind. Source: kubernetes, the field labels of each kind."""


class Requirement(NamedTuple):
    """One term of a selector. `operator`: in, notin, exists or absent."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if `labels` match the term; ``notin`` and ``!=`` also match labels without this key."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case _:
                return value is None


def parse_selector(text: str, option: str = "--selector") -> tuple[Requirement, ...]:
    """Parse a label selector to its terms, all of which must match. Raises InvalidConfig, which names the error."""
    terms: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TERM.match(text, position)
        if match is None:
            raise InvalidConfig(
                field=option,
                problem=f"{text[position:]!r} is not understood",
                fix="write a=b, a!=b, 'a in (b,c)', 'a notin (b)', a or !a, joined by commas",
            )
        terms.append(_requirement(match))
        position = match.end()
    return tuple(terms)


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["gone"], "absent")
    if match["op"]:
        return Requirement(
            match["key"], "notin" if match["op"] == "!=" else "in", frozenset({match["value"]})
        )
    if match["word"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], match["word"], values)
    return Requirement(match["key"], "exists")


def select(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Return True if the labels match all terms of a selector; True for an empty selector."""
    return all(requirement.matches(labels) for requirement in requirements)


def parse_field_selector(text: str, kind: str) -> tuple[Requirement, ...]:
    """Parse a field selector for objects of a kind, such as pod. Raises InvalidConfig, which names the error."""
    known = (*_METADATA, *_FIELDS.get(kind, ()))
    terms = parse_selector(text, "--field-selector")
    for term in terms:
        if term.key not in known or len(term.values) != 1:
            raise InvalidConfig(
                field="--field-selector",
                problem=f"{kind}s have no field {term.key!r}",
                fix=f"write FIELD=VALUE or FIELD!=VALUE with one of {', '.join(known)}",
            )
    return terms


def field_of(item: Any, path: str) -> str:
    """Return the text of a field such as ``status.podIP``; empty if it is not set."""
    for name in path.split("."):
        snake = re.sub(r"(?<=[a-z])[A-Z]+", lambda match: f"_{match[0].lower()}", name)
        item = item.get(name) if isinstance(item, dict) else getattr(item, snake, None)
    return "" if item is None else str(item)
