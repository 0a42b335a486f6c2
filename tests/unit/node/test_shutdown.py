"""In which order pods end when the host goes down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.node.shutdown import CRITICAL_PRIORITY, ShutdownGroup, groups_of, in_order, total_seconds


def group(priority: int, seconds: int) -> ShutdownGroup:
    return ShutdownGroup(priority=priority, shutdown_grace_period_seconds=seconds)


def test_critical_pods_end_last_in_the_time_that_is_kept_for_them() -> None:
    groups = groups_of(30, 10)
    assert groups == (group(0, 20), group(CRITICAL_PRIORITY, 10))
    assert total_seconds(groups) == 30
    pods = {"user": 0, "low": -7, "system": CRITICAL_PRIORITY + 1000, "high": CRITICAL_PRIORITY - 1}
    assert [(one.priority, members) for one, members in in_order(groups, pods)] == [
        (0, ("user", "low", "high")),
        (CRITICAL_PRIORITY, ("system",)),
    ]


def test_without_a_grace_period_nothing_is_waited_for() -> None:
    assert groups_of(0, 0) == ()
    assert in_order((), {"web": 1}) == ()


def test_groups_by_priority_are_put_in_order() -> None:
    groups = groups_of(0, 0, (group(1000, 5), group(0, 60), group(100, 10)))
    assert [one.priority for one in groups] == [0, 100, 1000]
    pods = {"a": 99, "b": 100, "c": 5000, "d": -1}
    assert [members for _, members in in_order(groups, pods)] == [("a", "d"), ("b",), ("c",)]


@given(
    st.lists(
        st.builds(group, st.integers(-100, 100), st.integers(0, 60)),
        min_size=1,
        unique_by=lambda g: g.priority,
    ),
    st.dictionaries(st.text(max_size=3), st.integers(-150, 150)),
)
def test_every_pod_ends_once_and_never_before_one_of_a_lower_group(
    groups: list[ShutdownGroup], pods: dict[str, int]
) -> None:
    order = in_order(groups, pods)
    assert sorted(one for _, members in order for one in members) == sorted(pods)
    lowest = min(one.priority for one in groups)
    for index, (one, members) in enumerate(order):
        for member in members:
            assert pods[member] >= one.priority or one.priority == lowest
            assert all(pods[member] < later.priority for later, _ in order[index + 1 :])
