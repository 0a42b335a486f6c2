"""Parses label selectors and field selectors in queries.

Labels: ``a=b``, ``a==b``, ``a!=b``, ``a in (x,y)``, ``a notin (x)``, ``a``, ``!a``. Fields: ``=``, ``==``,
``!=`` with the fields that a real server supports for the resource; any other field is refused with 400.
Source: apimachinery, pkg/labels/selector.go, pkg/fields/selector.go; pkg/apis/core/v1/conversion.go for the
fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from .errors import Json, bad_request
from .resources import Resource

Matcher = Callable[[Json], bool]

_METADATA: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "jobs": ("status.successful",),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "services": ("spec.clusterIP", "spec.type"),
    "certificatesigningrequests": ("spec.signerName",),
}
_SET: Final = re.compile(r"^([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL: Final = re.compile(r"^([^\s!=,()]+)\s*(==|!=|=)\s*([^\s!=,()]*)$")
_NAME: Final = re.compile(r"^(!?)\s*([^\s!=,()]+)$")


def label_matcher(text: str) -> Matcher | None:
    """Return a function that tests an object against a label selector; None for an empty selector.

    Raises StatusError 400 if the selector cannot be parsed.
    """
    if not text.strip():
        return None
    tests = [_label_test(part) for part in _split(text)]

    def matches(obj: Json) -> bool:
        labels = obj.get("metadata", {}).get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def field_matcher(resource: Resource, text: str) -> Matcher | None:
    """Return a function that tests an object against a field selector; None for an empty selector.

    Raises StatusError 400 if the selector cannot be parsed, or names a field that is not supported.
    """
    terms = field_terms(text)
    for name, _, _ in terms:
        if name not in _METADATA + (_FIELDS.get(resource.plural, ()) if resource.custom is None else ()):
            raise bad_request(f"field label not supported: {name}")
    if not terms:
        return None

    def matches(obj: Json) -> bool:
        return all((field_value(obj, name) == value) is equal for name, equal, value in terms)

    return matches


def field_terms(text: str) -> list[tuple[str, bool, str]]:
    """Parse a field selector into its terms: (field, must be equal, value).

    The second item is True for ``=`` and ``==``, False for ``!=``. Raises StatusError 400 if the selector
    cannot be parsed.
    """
    requirements = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = _EQUAL.match(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        requirements.append((match[1], match[2] != "!=", match[3]))
    return requirements


def field_value(obj: Json, name: str) -> str:
    """Return the value of a field as the text that field selectors are compared with; empty if it is missing."""
    if name == "source":
        source = obj.get("source") or {}
        return str(source.get("component") or obj.get("reportingComponent") or "")
    if name == "spec.hostNetwork":
        return str(bool((obj.get("spec") or {}).get("hostNetwork"))).lower()
    value: Any = obj
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "false" if name == "spec.unschedulable" else ""
    return str(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _label_test(part: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(part):
        name, wanted_in = match[1], match[2] == "in"
        values = {value.strip() for value in match[3].split(",")}
        if wanted_in:
            return lambda labels: name in labels and labels[name] in values
        return lambda labels: labels.get(name) not in values
    if match := _EQUAL.match(part):
        key, value = match[1], match[3]
        if match[2] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _NAME.match(part):
        label, absent = match[2], bool(match[1])
        return lambda labels: (label not in labels) is absent
    raise bad_request(f"unable to parse requirement: found '{part}'")
