"""Rules about where a pod may run: affinity, topology spread, tolerations. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from typing import Final

from ..types.core import (
    Affinity,
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from . import words
from .metadata import check_labels
from .problems import Problems, show

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")
_POLICIES: Final = ("Honor", "Ignore")


def check_scheduling(spec: PodSpec, problems: Problems) -> None:
    """Check the node selector, affinity, tolerations and spread constraints of a pod."""
    check_labels("spec.nodeSelector", spec.node_selector, problems)
    if spec.affinity is not None:
        _check_affinity("spec.affinity", spec.affinity, problems)
    for index, toleration in enumerate(spec.tolerations):
        _check_toleration(f"spec.tolerations[{index}]", toleration, problems)
    seen: set[str] = set()
    for index, constraint in enumerate(spec.topology_spread_constraints):
        field = f"spec.topologySpreadConstraints[{index}]"
        _check_spread(field, constraint, problems)
        key = f"{constraint.topology_key}, {constraint.when_unsatisfiable}"
        problems.unique(f"{field}.topologyKey", key, seen, "constraint")


def check_label_selector(field: str, selector: LabelSelector | None, problems: Problems) -> None:
    """Check a query over labels. `field`: its path."""
    if selector is None:
        return
    check_labels(f"{field}.matchLabels", selector.match_labels, problems)
    for index, expression in enumerate(selector.match_expressions):
        where = f"{field}.matchExpressions[{index}]"
        _check_condition(where, expression.key, expression.operator, expression.values, (), problems)


def _check_affinity(field: str, affinity: Affinity, problems: Problems) -> None:
    if affinity.node_affinity is not None:
        node = affinity.node_affinity
        selector = node.required_during_scheduling_ignored_during_execution
        if selector is not None:
            where = f"{field}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
            if not selector.node_selector_terms:
                problems.add(where, "is missing", "name at least one term, or remove the affinity")
            for index, term in enumerate(selector.node_selector_terms):
                _check_term(f"{where}[{index}]", term, problems)
        for index, preferred in enumerate(node.preferred_during_scheduling_ignored_during_execution):
            where = f"{field}.nodeAffinity.{_PREFERRED}[{index}]"
            problems.between(f"{where}.weight", preferred.weight, 1, 100)
            _check_term(f"{where}.preference", preferred.preference, problems)
    for word, pods in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if pods is None:
            continue
        for index, pod_term in enumerate(pods.required_during_scheduling_ignored_during_execution):
            _check_pod_term(f"{field}.{word}.{_REQUIRED}[{index}]", pod_term, problems)
        for index, weighted in enumerate(pods.preferred_during_scheduling_ignored_during_execution):
            where = f"{field}.{word}.{_PREFERRED}[{index}]"
            problems.between(f"{where}.weight", weighted.weight, 1, 100)
            _check_pod_term(f"{where}.podAffinityTerm", weighted.pod_affinity_term, problems)


def _check_term(field: str, term: NodeSelectorTerm, problems: Problems) -> None:
    for index, expression in enumerate(term.match_expressions):
        where = f"{field}.matchExpressions[{index}]"
        _check_condition(
            where, expression.key, expression.operator, expression.values, ("Gt", "Lt"), problems
        )
    for index, expression in enumerate(term.match_fields):
        _check_field(f"{field}.matchFields[{index}]", expression, problems)


def _check_condition(
    field: str,
    key: str,
    operator: str,
    values: tuple[str, ...],
    comparing: tuple[str, ...],
    problems: Problems,
) -> None:
    """Check a condition on a label. `comparing`: operators that need exactly one value."""
    problems.name(f"{field}.key", key, words.qualified_name)
    problems.one_of(f"{field}.operator", operator, (*_WITH_VALUES, *_WITHOUT_VALUES, *comparing))
    if operator in _WITH_VALUES and not values:
        problems.add(f"{field}.values", f"is missing with operator {operator}", "name the values")
    elif operator in _WITHOUT_VALUES and values:
        problems.add(f"{field}.values", f"is set with operator {operator}", "remove it")
    elif operator in comparing and len(values) != 1:
        problems.add(f"{field}.values", f"has {len(values)} values with operator {operator}", "use one value")
    for index, value in enumerate(values):
        problems.word(f"{field}.values[{index}]", value, words.label_value)


def _check_field(field: str, requirement: NodeSelectorRequirement, problems: Problems) -> None:
    problems.one_of(f"{field}.key", requirement.key, ("metadata.name",))
    problems.one_of(f"{field}.operator", requirement.operator, _WITH_VALUES)
    if len(requirement.values) != 1:
        problems.add(f"{field}.values", f"has {len(requirement.values)} values", "name one node")
    for index, value in enumerate(requirement.values):
        problems.name(f"{field}.values[{index}]", value, words.dns_subdomain)


def _check_pod_term(field: str, term: PodAffinityTerm, problems: Problems) -> None:
    problems.name(f"{field}.topologyKey", term.topology_key, words.qualified_name)
    for index, namespace in enumerate(term.namespaces):
        problems.name(f"{field}.namespaces[{index}]", namespace, words.dns_label)
    check_label_selector(f"{field}.labelSelector", term.label_selector, problems)
    check_label_selector(f"{field}.namespaceSelector", term.namespace_selector, problems)
    _check_keys(f"{field}.matchLabelKeys", term.match_label_keys, term.label_selector, problems)
    _check_keys(f"{field}.mismatchLabelKeys", term.mismatch_label_keys, term.label_selector, problems)
    for key in {*term.match_label_keys} & {*term.mismatch_label_keys}:
        problems.add(f"{field}.matchLabelKeys", f"{show(key)} is in mismatchLabelKeys, too", "keep one")


def _check_spread(field: str, constraint: TopologySpreadConstraint, problems: Problems) -> None:
    problems.between(f"{field}.maxSkew", constraint.max_skew, 1)
    problems.required(f"{field}.topologyKey", constraint.topology_key)
    problems.one_of(
        f"{field}.whenUnsatisfiable", constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")
    )
    problems.between(f"{field}.minDomains", constraint.min_domains, 1)
    if constraint.min_domains is not None and constraint.when_unsatisfiable != "DoNotSchedule":
        problems.add(
            f"{field}.minDomains", f"{constraint.min_domains} without DoNotSchedule", "set whenUnsatisfiable"
        )
    problems.one_of(f"{field}.nodeAffinityPolicy", constraint.node_affinity_policy, _POLICIES)
    problems.one_of(f"{field}.nodeTaintsPolicy", constraint.node_taints_policy, _POLICIES)
    check_label_selector(f"{field}.labelSelector", constraint.label_selector, problems)
    _check_keys(f"{field}.matchLabelKeys", constraint.match_label_keys, constraint.label_selector, problems)


def _check_keys(
    field: str, keys: tuple[str, ...], selector: LabelSelector | None, problems: Problems
) -> None:
    """Check keys whose values come from the pod's own labels, and are added to the selector."""
    if keys and selector is None:
        problems.add(field, "is set without labelSelector", "set labelSelector")
    written = set(selector.match_labels) if selector is not None else set()
    for index, key in enumerate(keys):
        problems.name(f"{field}[{index}]", key, words.qualified_name)
        if key in written:
            problems.add(f"{field}[{index}]", f"{show(key)} is in labelSelector, too", "keep one")


def _check_toleration(field: str, toleration: Toleration, problems: Problems) -> None:
    operator = toleration.operator or "Equal"
    problems.one_of(f"{field}.operator", operator, ("Exists", "Equal"))
    problems.word(f"{field}.key", toleration.key, words.qualified_name)
    if not toleration.key and operator != "Exists":
        problems.add(f"{field}.operator", f"{show(operator)} without a key", "use Exists or set key")
    if operator == "Exists" and toleration.value:
        problems.add(f"{field}.value", f"{show(toleration.value)} with operator Exists", "remove it")
    elif operator == "Equal":
        problems.word(f"{field}.value", toleration.value, words.label_value)
    problems.one_of(f"{field}.effect", toleration.effect, ("", *_EFFECTS))
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        problems.add(
            f"{field}.tolerationSeconds",
            f"{toleration.toleration_seconds} without effect NoExecute",
            "remove it",
        )
