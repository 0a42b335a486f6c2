"""Rules for requests and limits. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..requests import container_requests
from ..text.quantity import NANO, Quantity, parse
from ..types.container import ResourceRequirements
from ..types.core import PodSpec
from . import words
from .problems import Problems, show
from .words import Check

_HUGE_PAGES: Final = "hugepages-"
_COMPUTE: Final = frozenset({"cpu", "memory"})


def check_resources(
    field: str, resources: ResourceRequirements, problems: Problems, allowed: Check = words.container_resource
) -> None:
    """Check that every amount is a quantity of 0 or more of a known resource, and that no request is above its limit.

    Requests for huge pages and devices must equal their limits. A request that is written like its limit is
    not checked, so that a mistake in both is reported once. `allowed`: check of the resources' names.
    """
    own = {name: text for name, text in resources.requests.items() if resources.limits.get(name) != text}
    requests = check_amounts(f"{field}.requests", own, problems, allowed)
    limits = check_amounts(f"{field}.limits", resources.limits, problems, allowed)
    for name, request in requests.items():
        if name in limits:
            _compare(f"{field}.requests[{name}]", name, request, limits[name], resources, problems)
        elif not _may_overcommit(name) and name not in resources.limits:
            problems.add(f"{field}.limits[{name}]", "is missing", "make request and limit equal")
    _check_companions(field, {*resources.limits, *resources.requests}, problems)


def check_overhead(overhead: Mapping[str, str], problems: Problems) -> None:
    """Check the resources that a pod needs in addition to those of its containers."""
    check_amounts("spec.overhead", overhead, problems)
    _check_companions("spec.overhead", set(overhead), problems)


def check_amounts(
    field: str, amounts: Mapping[str, str], problems: Problems, allowed: Check = words.container_resource
) -> dict[str, Quantity]:
    """Check a map from resource names to quantities of 0 or more, and return the valid entries."""
    valid = {}
    for name, text in amounts.items():
        where = f"{field}[{name}]"
        if problem := allowed(name):
            problems.add(where, f"{show(name)} {problem}", "correct the name")
            continue
        amount = problems.quantity(where, text)
        if amount is None:
            continue
        valid[name] = amount
        if name.startswith(_HUGE_PAGES):
            _check_pages(where, name.removeprefix(_HUGE_PAGES), amount, problems)
        elif _is_device(name) and amount.nanos % NANO:
            problems.add(where, f"{show(text)} is not a whole number", "count devices")
    return valid


def check_pod_resources(spec: PodSpec, problems: Problems) -> None:
    """Check the resources of the pod as a whole, and that they are enough for its containers."""
    check_resources("spec.resources", spec.resources, problems, words.pod_resource)
    quiet = Problems("")
    try:
        together = container_requests(spec)
    except ValueError:  # an invalid quantity of a container, which is reported there
        return
    for name, text in spec.resources.requests.items():
        amount, needed = quiet.quantity("", text), together.get(name)
        if amount is not None and needed is not None and needed.nanos > amount.nanos:
            problem = f"{show(text)} is below the {needed} that the containers request"
            problems.add(f"spec.resources.requests[{name}]", problem, "raise it, or lower theirs")
    for index, container in enumerate(spec.containers):
        for name, text in container.resources.limits.items():
            own, whole = quiet.quantity("", text), quiet.quantity("", spec.resources.limits.get(name))
            if own is not None and whole is not None and own.nanos > whole.nanos:
                field = f"spec.containers[{index}].resources.limits[{name}]"
                problems.add(field, f"{show(text)} is above the pod's limit {whole}", "lower it")


def _check_companions(field: str, names: set[str], problems: Problems) -> None:
    if any(name.startswith(_HUGE_PAGES) for name in names) and not names & _COMPUTE:
        problems.add(field, "has huge pages without cpu or memory", "set memory, too")


def _compare(
    field: str,
    name: str,
    request: Quantity,
    limit: Quantity,
    resources: ResourceRequirements,
    problems: Problems,
) -> None:
    written = show(resources.requests[name])
    if request.nanos > limit.nanos:
        fix = f"lower the request or raise the limit {show(resources.limits[name])}"
        problems.add(field, f"{written} is above the limit", fix)
    elif request.nanos < limit.nanos and not _may_overcommit(name):
        problems.add(field, f"{written} is below the limit", "make request and limit equal")


def _check_pages(field: str, size: str, amount: Quantity, problems: Problems) -> None:
    try:
        page = parse(size)
    except ValueError:
        page = Quantity(0)
    if page.nanos <= 0:
        problems.add(field, f"{show(size)} is not a size of pages", "use a size such as hugepages-2Mi")
    elif amount.nanos % page.nanos:
        problems.add(field, f"{amount} is not a multiple of {size}", "use whole pages")


def _is_device(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _may_overcommit(name: str) -> bool:
    """Return True if a request for this resource may be less than its limit; False for huge pages and devices."""
    return not _is_device(name) and not name.startswith(_HUGE_PAGES)
