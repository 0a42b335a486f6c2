"""Rules for requests and limits. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from ..types.container import ResourceRequirements
from . import words
from .problems import Problems, show


def check_resources(field: str, resources: ResourceRequirements, problems: Problems) -> None:
    """Check that every amount is a quantity of 0 or more, and that no request is above its limit.

    Requests for huge pages and devices must equal their limits. A request that is written like its limit is
    not checked, so that a mistake in both is reported once.
    """
    own = {name: text for name, text in resources.requests.items() if resources.limits.get(name) != text}
    check_amounts(f"{field}.requests", own, problems)
    limits = {
        name: problems.quantity(f"{field}.limits[{name}]", text) for name, text in resources.limits.items()
    }
    for name in limits:
        problems.word(f"{field}.limits", name, words.qualified_name)
    quiet = Problems("")
    for name, text in own.items():
        request, limit = quiet.quantity("", text), limits.get(name)
        if request is None or limit is None:
            continue
        fix = f"lower the request or raise the limit {show(resources.limits[name])}"
        if request.nanos > limit.nanos:
            problems.add(f"{field}.requests[{name}]", f"{show(text)} is above the limit", fix)
        elif request.nanos < limit.nanos and not _may_overcommit(name):
            problems.add(
                f"{field}.requests[{name}]",
                f"{show(text)} is below the limit",
                "make request and limit equal",
            )


def check_amounts(field: str, amounts: dict[str, str], problems: Problems) -> None:
    """Check a map from resource names to quantities of 0 or more. `field`: path of the map."""
    for name, text in amounts.items():
        problems.word(field, name, words.qualified_name)
        problems.quantity(f"{field}[{name}]", text)


def _may_overcommit(name: str) -> bool:
    """Return True if a request for this resource may be less than its limit; False for huge pages and devices."""
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith("hugepages-")
