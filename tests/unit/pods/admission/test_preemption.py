"""Whom a critical pod ends to have room: few, small, of the lowest class, and nobody in vain (A7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import PodUid
from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubeletx.pods.admission.node import Taken
from kubeletx.pods.admission.preemption import choose_victims, without

CLASSES = (BEST_EFFORT, BURSTABLE, GUARANTEED)


def taken(name: str, qos: str = BURSTABLE, *, is_critical: bool = False, **amounts: int) -> Taken:
    return Taken(uid=PodUid(name), ref=name, qos=qos, is_critical=is_critical, amounts=amounts)


def names(missing: dict[str, int], *pods: Taken) -> list[str] | None:
    victims = choose_victims(missing, pods)
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


def test_critical_pods_never_go_and_nobody_goes_when_all_would_not_be_enough() -> None:
    critical = taken("critical", cpu=900, is_critical=True)
    assert names({"cpu": 500}, critical, taken("lower", cpu=400)) is None
    assert names({"cpu": 300}, critical, taken("lower", cpu=400)) == ["lower"]


def test_who_was_chosen_first_is_spared_when_the_next_one_is_enough_alone() -> None:
    first = taken("first", cpu=90, memory=60)  # nearest, but without enough memory
    second = taken("second", GUARANTEED, cpu=100, memory=100)
    assert names({"cpu": 100, "memory": 100}, first, second) == ["second"]


PODS = st.lists(
    st.builds(
        lambda number, qos, is_critical, cpu, memory: taken(
            f"p{number}", qos, is_critical=is_critical, cpu=cpu, memory=memory
        ),
        st.integers(),
        st.sampled_from(CLASSES),
        st.booleans(),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    max_size=12,
    unique_by=lambda pod: pod.ref,
)
MISSING = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(1, 90))


@given(missing=MISSING, pods=PODS)
def test_the_victims_are_enough_each_is_needed_and_none_is_critical(
    missing: dict[str, int], pods: list[Taken]
) -> None:
    lower = [pod for pod in pods if not pod.is_critical]
    victims = choose_victims(missing, pods)
    if victims is None:
        assert without(missing, lower)
        return
    assert not without(missing, victims)
    assert not any(pod.is_critical for pod in victims)
    for one in victims:
        assert without(missing, [pod for pod in victims if pod is not one])


@given(missing=MISSING, pods=PODS)
def test_no_guaranteed_pod_goes_while_the_others_together_are_enough(
    missing: dict[str, int], pods: list[Taken]
) -> None:
    for higher in (GUARANTEED, BURSTABLE):
        below = CLASSES[: CLASSES.index(higher)]
        lower = [pod for pod in pods if not pod.is_critical and pod.qos in below]
        if not without(missing, lower):
            victims = choose_victims(missing, pods)
            assert victims is not None
            assert {pod.qos for pod in victims} <= set(below)
