"""Evictions, and the PodDisruptionBudgets that refuse them.

An eviction that a budget refuses gets code 429 with the cause DisruptionBudget. The answer has a Retry-After
header only while the budget's status is older than its spec. With `Settings.controllers` the double updates
the status of budgets as the disruption controller does; without it, a test sets the status. Percentages refer
to the number of existing pods, since no controller defines an expected number. Source: kubernetes,
pkg/registry/core/pod/storage/eviction.go; pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from .errors import Json, StatusError, forbidden, invalid
from .resources import resource
from .settings import Settings, timestamp
from .store import Change, Store

BUDGETS: Final = resource("poddisruptionbudgets")
PODS: Final = resource("pods")
_FREE_PHASES: Final = ("Pending", "Succeeded", "Failed")
_ZERO: Final[Json] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_OUTDATED_SECONDS: Final = 10


class TwoBudgets(StatusError):
    """Raised if an eviction is refused because several budgets select the pod.

    As from a real server, the Status has code 500 but the HTTP answer 201.
    """

    def __init__(self) -> None:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        super().__init__(500, "", message)


def new_budget(made: Json) -> Json:
    """Return a new PodDisruptionBudget whose status has only zeros. Raises StatusError 422 if it is invalid."""
    spec = made.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        problem = f"Invalid value: {spec}: minAvailable and maxUnavailable cannot be both set"
        raise invalid(BUDGETS, made["metadata"]["name"], [("spec", "FieldValueInvalid", problem)])
    return {**made, "status": dict(_ZERO)}


def permit(store: Store, settings: Settings, pod: Json, options: Json) -> Json:
    """Check that an eviction is allowed, and return the delete options for it.

    If a budget allows the eviction, its stored status is updated: one disruption less is allowed. `pod`: the
    pod to evict. `options`: the delete options of the eviction. Raises StatusError 403, 429 or 500 if the
    eviction is refused.
    """
    metadata = pod["metadata"]
    if pod.get("status", {}).get("phase") in _FREE_PHASES or "deletionTimestamp" in metadata:
        return options
    budgets = [budget for budget in _budgets(store, metadata["namespace"]) if _selects(budget, pod)]
    if not budgets:
        return options
    if len(budgets) > 1:
        raise TwoBudgets
    budget, status = budgets[0], {**_ZERO, **(budgets[0].get("status") or {})}
    if not _is_ready(pod) and _may_go_unready(budget, status):
        version = {"resourceVersion": metadata["resourceVersion"]}
        return {**options, "preconditions": {**version, **(options.get("preconditions") or {})}}
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise _refused(cause, _OUTDATED_SECONDS)
    if status["disruptionsAllowed"] < 0:
        raise forbidden(BUDGETS, name, "pdb disruptions allowed is negative")
    if status["disruptionsAllowed"] == 0:
        healthy = (
            f"needs {status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
        )
        raise _refused(f"The disruption budget {name} {healthy}", 0)
    status["disruptionsAllowed"] -= 1
    disrupted = {**(status.get("disruptedPods") or {}), metadata["name"]: timestamp(settings.now())}
    store.put(BUDGETS, {**budget, "status": {**status, "disruptedPods": disrupted}})
    return options


def follower(store: Store, settings: Settings) -> Callable[[Change], None]:
    """Return a listener for changes of the store that updates the status of budgets.

    It does what the disruption controller does, and nothing unless `Settings.controllers` is set.
    """

    def hear(change: Change) -> None:
        about = change.after or change.before
        if (
            about is None
            or change.table not in (BUDGETS.full_name, PODS.full_name)
            or not settings.controllers
        ):
            return
        for budget in list(_budgets(store, about.value["metadata"]["namespace"])):
            store.put(BUDGETS, {**budget, "status": _status(store, budget)})

    return hear


def _status(store: Store, budget: Json) -> Json:
    pods = [stored.value for stored in store.all(PODS, budget["metadata"]["namespace"])]
    pods = [
        pod for pod in pods if _selects(budget, pod) and pod["status"].get("phase") not in _FREE_PHASES[1:]
    ]
    before = budget.get("status") or {}
    there = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    disrupted = {name: at for name, at in (before.get("disruptedPods") or {}).items() if name in there}
    healthy = sum(
        _is_ready(pod)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"] not in disrupted
        for pod in pods
    )
    desired = _desired(budget.get("spec") or {}, len(pods))
    made: Json = {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "expectedPods": len(pods),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if pods else 0,
    }
    return {**made, **({"disruptedPods": disrupted} if disrupted else {})}


def _desired(spec: Json, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - _count(spec["maxUnavailable"], expected))
    return _count(spec.get("minAvailable", 1), expected)


def _count(value: int | str, expected: int) -> int:
    """Return an absolute `value` itself; return a percentage as a share of `expected`, rounded up."""
    if isinstance(value, int):
        return value
    return math.ceil(int(value.removesuffix("%")) * expected / 100)


def _may_go_unready(budget: Json, status: Json) -> bool:
    """Return True if a pod that is not ready may be evicted although the budget allows no more disruptions.

    Source: KEP-3017.
    """
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)


def _budgets(store: Store, namespace: str) -> Iterator[Json]:
    return (stored.value for stored in store.all(BUDGETS, namespace))


def _selects(budget: Json, pod: Json) -> bool:
    """Return True if the budget selects the pod. An absent or empty selector selects no pod."""
    selector = (budget.get("spec") or {}).get("selector") or {}
    labels = pod["metadata"].get("labels") or {}
    wanted, rules = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not wanted and not rules:
        return False
    return wanted.items() <= labels.items() and all(_holds(rule, labels) for rule in rules)


def _holds(rule: Json, labels: dict[str, str]) -> bool:
    key, values = rule["key"], rule.get("values") or []
    match rule["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _refused(cause: str, retry_after_seconds: int) -> StatusError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = {}
    if retry_after_seconds:
        details["retryAfterSeconds"] = retry_after_seconds
        headers["Retry-After"] = str(retry_after_seconds)
    return StatusError(429, "TooManyRequests", _REFUSED, details, headers)
