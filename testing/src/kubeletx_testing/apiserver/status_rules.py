"""Validation of pod and node statuses: finds those that an API server refuses.

The main rule: a container that has ended may run again only if its restart policy permits it. Messages and
their order are those of a real v1.36. Source: kubernetes, pkg/apis/core/validation ValidatePodStatusUpdate,
ValidateContainerStateTransition, ValidateNodeUpdate.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec

from kubeletx.kube.text.quantity import parse

from .errors import Json, bad_request
from .objects import label_key_problem

Cause = tuple[str, str, str]
_INVALID, _FORBIDDEN, _DUPLICATE = "FieldValueInvalid", "FieldValueForbidden", "FieldValueDuplicate"
_NEGATIVE: Final = "must be a non-negative integer"
_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_FEATURE: Final = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z0-9]+)*")
_FEATURE_RULE: Final = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_STATUSES: Final = (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"))


def pod_status_causes(spec: Json, old: Json, new: Json) -> list[Cause]:
    """Return the reasons to refuse a pod's new status, as (field, reason, message); empty if it is accepted.

    `spec`: the pod's spec. `old`: the stored status. Raises StatusError 400 for invalid quantities.
    """
    for field, _ in _STATUSES:
        for one in new.get(field) or ():
            _check_amounts(one.get("allocatedResources"))
            for amounts in (one.get("resources") or {}).values():
                _check_amounts(amounts if isinstance(amounts, dict) else None)
    return [*_of_conditions(new), *_of_class(old, new), *_of_states(spec, old, new), *_of_addresses(new)]


def node_status_causes(status: Json) -> list[Cause]:
    """Return the reasons to refuse a node's new status, as (field, reason, message); empty if it is accepted.

    Raises StatusError 400 for invalid quantities.
    """
    causes: list[Cause] = []
    for field in ("capacity", "allocatable"):
        amounts = status.get(field) or {}
        _check_amounts(amounts)
        for name, text in amounts.items():
            if parse(text).nanos < 0:
                problem = f'Invalid value: "{text}": must be greater than or equal to 0'
                causes.append((f"status.{field}.{name}", _INVALID, problem))
    addresses = [
        (address.get("type", ""), address.get("address", "")) for address in status.get("addresses") or ()
    ]
    for index, (type_, address) in enumerate(addresses):
        if (type_, address) in addresses[:index]:
            problem = f"Duplicate value: {_go({'Type': type_, 'Address': address})}"
            causes.append((f"status.addresses[{index}]", _DUPLICATE, problem))
    return [*causes, *_of_features(status.get("declaredFeatures") or [])]


def _of_features(features: list[str]) -> Iterator[Cause]:
    for index, name in enumerate(features):
        if not _FEATURE.fullmatch(name):
            problem = f'Invalid value: "{name}": invalid feature name "{name}": {_FEATURE_RULE}'
            yield f"status.declaredFeatures[{index}]", _INVALID, problem
    for index, (before, name) in enumerate(pairwise(features), start=1):
        if name < before:
            problem = f'Invalid value: "{name}": list must be sorted alphabetically'
            yield f"status.declaredFeatures[{index}]", _INVALID, problem


def _of_conditions(status: Json) -> Iterator[Cause]:
    for index, condition in enumerate(status.get("conditions") or ()):
        field = f"status.conditions[{index}]"
        if (seen := condition.get("observedGeneration", 0)) < 0:
            yield f"{field}.observedGeneration", _INVALID, f"Invalid value: {seen}: {_NEGATIVE}"
        type_ = condition.get("type", "")
        if problem := label_key_problem(type_):
            yield f"{field}.Type", _INVALID, f'Invalid value: "{type_}": {problem}'
    if (seen := status.get("observedGeneration") or 0) < 0:
        yield "status.observedGeneration", _INVALID, f"Invalid value: {seen}: {_NEGATIVE}"


def _of_class(old: Json, new: Json) -> Iterator[Cause]:
    before, after = old.get("qosClass"), new.get("qosClass")
    if before and after and before != after:
        yield "status.qosClass", _INVALID, f'Invalid value: "{after}": field is immutable'


def _of_states(spec: Json, old: Json, new: Json) -> Iterator[Cause]:
    every = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    rules = [rule for container in every for rule in container.get("restartPolicyRules") or ()]
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        return
    for field, containers in _STATUSES:
        by_name = {container["name"]: container for container in spec.get(containers) or ()}
        ended = {index: one for index, one in enumerate(old.get(field) or ()) if "terminated" in one["state"]}
        alive = {one["name"] for one in new.get(field) or () if "terminated" not in one.get("state", {})}
        for index, one in ended.items():
            code = one["state"]["terminated"].get("exitCode", 0)
            if one["name"] in alive and not _may_run_again(by_name.get(one["name"], {}), spec, code):
                problem = "Forbidden: may not be transitioned to non-terminated state"
                yield f"status.{field}[{index}].state", _FORBIDDEN, problem


def _may_run_again(container: Json, spec: Json, code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if (code in codes.get("values", ())) == (codes.get("operator") != "NotIn"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _of_addresses(status: Json) -> Iterator[Cause]:
    for field in ("podIPs", "hostIPs"):
        texts = [entry.get("ip") or "" for entry in status.get(field) or ()]
        problems = {index: text for index, text in enumerate(texts) if not _is_address(text)}
        for index, text in problems.items():
            yield f"status.{field}[{index}]", _INVALID, f'Invalid value: "{text}": {_ADDRESS}'
        if field == "hostIPs" and texts and texts[0] != (status.get("hostIP") or ""):
            problem = f'Invalid value: "{texts[0]}": must be equal to `hostIP`'
            yield "status.hostIPs[0].ip", _INVALID, problem
        if not problems and len({":" in text for text in texts}) < len(texts):
            shown = _go([{"IP": text} for text in texts])
            problem = f"Invalid value: {shown}: may specify no more than one IP for each IP family"
            yield f"status.{field}", _INVALID, problem


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id))


def _check_amounts(amounts: Json | None) -> None:
    for text in (amounts or {}).values():
        try:
            parse(str(text))
        except ValueError as err:
            raise bad_request(_QUANTITY) from err


def _go(value: Any) -> str:
    return msgspec.json.encode(value).decode()
