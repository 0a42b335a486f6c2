"""Pods that a critical pod ends to have room: few, small, of the lowest class, and none without need (A7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import PodUid
from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubeletx.pods.admission.node import Taken
from kubeletx.pods.admission.preemption import choose_victims, may_preempt, no_victims, without
from kubeletx.pods.model.facts import Rejection
from kubeletx.pods.model.priority import CRITICAL_PRIORITY

CLASSES = (BEST_EFFORT, BURSTABLE, GUARANTEED)


def taken(
    name: str, qos: str = BURSTABLE, *, critical: bool = False, priority: int | None = None, **amounts: int
) -> Taken:
    return Taken(
        uid=PodUid(name), ref=name, qos=qos, is_critical=critical, priority=priority, amounts=amounts
    )


WANTED = taken("wanted", critical=True, priority=CRITICAL_PRIORITY)


def names(missing: dict[str, int], *pods: Taken, wanted: Taken = WANTED) -> list[str] | None:
    victims = choose_victims(missing, wanted, pods)
    return sorted(one.ref for one in victims) if victims is not None else None


def test_the_lowest_class_that_is_enough_goes() -> None:
    low, middle, high = (taken(qos, qos, cpu=500, memory=5) for qos in CLASSES)
    assert names({"pods": 1}, high, middle, low) == [BEST_EFFORT]
    assert names({"cpu": 500}, high, middle) == [BURSTABLE]
    assert names({"cpu": 600}, high, middle) == [BURSTABLE, GUARANTEED]


def test_one_that_is_enough_is_better_than_two_and_the_smallest_of_these_is_best() -> None:
    small, fitting, large = taken("small", cpu=200), taken("fitting", cpu=400), taken("large", cpu=900)
    assert names({"cpu": 300}, small, large, fitting) == ["fitting"]
    assert names({"cpu": 300, "memory": 10}, small, taken("both", cpu=300, memory=10), large) == ["both"]


def test_no_one_goes_when_all_that_may_go_would_not_be_enough() -> None:
    equal = taken("equal", critical=True, priority=CRITICAL_PRIORITY, cpu=900)
    assert names({"cpu": 500}, equal, taken("lower", cpu=400)) is None
    assert names({"cpu": 300}, equal, taken("lower", cpu=400)) == ["lower"]


def test_a_critical_pod_goes_for_a_higher_priority_when_no_other_pods_are_enough() -> None:
    wanted = taken("wanted", critical=True, priority=CRITICAL_PRIORITY + 1000)
    lower = taken("lower", critical=True, priority=CRITICAL_PRIORITY, cpu=500)
    lowest = taken("lowest", GUARANTEED, critical=True, priority=100, cpu=500)
    user = taken("user", GUARANTEED, priority=500, cpu=500)
    assert names({"cpu": 500}, lower, lowest, user, wanted=wanted) == ["user"]
    assert names({"cpu": 600}, lower, lowest, user, wanted=wanted) == ["lowest", "user"]
    assert names({"cpu": 1500}, lower, lowest, user, wanted=wanted) == ["lower", "lowest", "user"]


def test_a_static_pod_without_a_priority_neither_ends_critical_pods_nor_ends_for_them() -> None:
    static = taken("static", critical=True)
    high = taken("high", critical=True, priority=CRITICAL_PRIORITY + 1000)
    user = taken("user", priority=1000)
    assert not may_preempt(high, static)
    assert not may_preempt(static, high)
    assert may_preempt(static, user)
    assert may_preempt(static, taken("unset"))
    assert not may_preempt(user, taken("unset"))


def test_it_is_reported_what_would_be_missing_even_without_all_of_them() -> None:
    equal = taken("equal", critical=True, priority=CRITICAL_PRIORITY, cpu=900, memory=900)
    others = [equal, taken("lower", cpu=400, memory=50)]
    first = Rejection(reason="OutOfcpu", message="Node didn't have enough resource: cpu")
    refusal = no_victims({"memory": 300, "cpu": 500}, WANTED, others, first)
    assert refusal.reason == "UnexpectedAdmissionError"
    assert first.message in refusal.message
    assert "still be missing: cpu: 100m, memory: 250;" in refusal.message


PRIORITIES = st.sampled_from([None, 0, 100, CRITICAL_PRIORITY, CRITICAL_PRIORITY + 1000])
PODS = st.lists(
    st.builds(
        lambda number, qos, critical, priority, cpu, memory: taken(
            f"p{number}", qos, critical=critical, priority=priority, cpu=cpu, memory=memory
        ),
        st.integers(),
        st.sampled_from(CLASSES),
        st.booleans(),
        PRIORITIES,
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    max_size=12,
    unique_by=lambda pod: pod.ref,
)
MISSING = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(1, 90))


@given(missing=MISSING, pods=PODS, priority=PRIORITIES)
def test_the_victims_are_enough_each_is_needed_and_may_end(
    missing: dict[str, int], pods: list[Taken], priority: int | None
) -> None:
    wanted = taken("wanted", critical=True, priority=priority)
    lower = [pod for pod in pods if may_preempt(wanted, pod)]
    victims = choose_victims(missing, wanted, pods)
    if victims is None:
        assert without(missing, lower)
        return
    assert not without(missing, victims)
    assert all(may_preempt(wanted, one) for one in victims)
    for one in victims:
        assert without(missing, [pod for pod in victims if pod is not one])


@given(missing=MISSING, pods=PODS, priority=PRIORITIES)
def test_no_critical_pod_goes_while_the_others_together_are_enough(
    missing: dict[str, int], pods: list[Taken], priority: int | None
) -> None:
    wanted = taken("wanted", critical=True, priority=priority)
    others = [pod for pod in pods if not pod.is_critical]
    if without(missing, others):
        return
    victims = choose_victims(missing, wanted, pods)
    assert victims is not None
    assert not any(pod.is_critical for pod in victims)


@given(missing=MISSING, pods=PODS)
def test_no_guaranteed_pod_goes_while_the_others_together_are_enough(
    missing: dict[str, int], pods: list[Taken]
) -> None:
    for higher in (GUARANTEED, BURSTABLE):
        below = CLASSES[: CLASSES.index(higher)]
        lower = [pod for pod in pods if not pod.is_critical and pod.qos in below]
        if not without(missing, lower):
            victims = choose_victims(missing, WANTED, pods)
            assert victims is not None
            assert {pod.qos for pod in victims} <= set(below)
