"""Garbage collection (I7)."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kubeletx.api import PodUid, SandboxId, SandboxState, SandboxSummary, UnitId, UnitState, UnitSummary
from kubeletx.pods.plan.garbage import dead_objects

UID = PodUid("u1")


def unit(
    name: str, attempt: int, state: UnitState = UnitState.EXITED, *, sandbox: str = "s0", created: int = 0
) -> UnitSummary:
    return UnitSummary(
        id=UnitId(f"{name}-{attempt}"),
        sandbox_id=SandboxId(sandbox),
        uid=UID,
        name=name,
        attempt=attempt,
        state=state,
        created_at_ns=created,
    )


def sandbox(attempt: int, *, ready: bool = False, created: int = 0) -> SandboxSummary:
    return SandboxSummary(
        id=SandboxId(f"s{attempt}"),
        uid=UID,
        name="p",
        namespace="default",
        attempt=attempt,
        state=SandboxState.READY if ready else SandboxState.NOT_READY,
        created_at_ns=created,
    )


def ids(*units: UnitSummary) -> list[str]:
    return [u.id for u in dead_objects((), units).units]


def test_one_dead_unit_of_each_container_is_kept() -> None:
    assert ids(unit("a", 2), unit("a", 1), unit("a", 0), unit("b", 0)) == ["a-0", "a-1"]


def test_the_newest_dead_unit_is_kept_beside_a_living_one() -> None:
    assert ids(unit("a", 2, UnitState.RUNNING), unit("a", 1), unit("a", 0)) == ["a-0"]


def test_held_parked_and_unknown_units_are_never_garbage() -> None:
    for state in (UnitState.PAUSED, UnitState.SUSPENDED, UnitState.UNKNOWN, UnitState.RUNNING):
        assert ids(unit("a", 2), unit("a", 1, state), unit("a", 0, state)) == []


def test_the_newest_unit_is_its_workers_business_even_if_it_was_only_created() -> None:
    assert ids(unit("a", 1, UnitState.CREATED), unit("a", 0)) == ["a-0"]


def test_the_newest_sandbox_and_those_in_use_stay() -> None:
    sandboxes = [sandbox(2), sandbox(1), sandbox(0)]
    found = dead_objects(sandboxes, [unit("a", 0, sandbox="s1")])
    assert [s.id for s in found.sandboxes] == ["s0"]


def test_a_sandbox_goes_together_with_its_last_dead_unit() -> None:
    units = [unit("a", 1, sandbox="s1"), unit("a", 0, sandbox="s0")]
    found = dead_objects([sandbox(1, ready=True), sandbox(0)], units)
    assert [u.id for u in found.units] == ["a-0"]
    assert [s.id for s in found.sandboxes] == ["s0"]


_UNITS = st.builds(
    unit,
    st.sampled_from(["a", "b"]),
    st.integers(0, 5),
    st.sampled_from(list(UnitState)),
    sandbox=st.sampled_from(["s0", "s1"]),
    created=st.integers(0, 2000),
)
_SANDBOXES = st.builds(sandbox, st.integers(0, 3), ready=st.booleans(), created=st.integers(0, 2000))


@given(
    units=st.lists(_UNITS, unique_by=lambda u: u.id),
    sandboxes=st.lists(_SANDBOXES, unique_by=lambda s: s.id),
)
@example(
    units=[unit("a", 1, sandbox="s1"), unit("a", 0, sandbox="s0")],
    sandboxes=[sandbox(1, ready=True), sandbox(0)],
)  # a sandbox goes with its units, which random ones seldom show
def test_whatever_runs_is_used_or_is_the_newest_stays(
    units: list[UnitSummary], sandboxes: list[SandboxSummary]
) -> None:
    found = dead_objects(sandboxes, units)
    going = {u.id for u in found.units}
    for one in units:
        if one.state.is_alive or one.state is UnitState.UNKNOWN:
            assert one.id not in going
        if max((u for u in units if u.name == one.name), key=lambda u: u.attempt) is one:
            assert one.id not in going
    for gone in found.sandboxes:
        assert gone.state is SandboxState.NOT_READY
        assert any(s.attempt > gone.attempt for s in sandboxes)
        assert all(u.id in going for u in units if u.sandbox_id == gone.id)
    left_units = [u for u in units if u.id not in going]
    left = [s for s in sandboxes if s not in found.sandboxes]
    assert dead_objects(left, left_units).is_empty
