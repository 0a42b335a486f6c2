"""The plan of one volume, over random histories: requests, failed steps, crashes and reboots at any moment."""

from __future__ import annotations

import enum

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.journal import Content, Mark, Use, VolumeJournal
from kubeletx_flexvolume.agent.plan import (
    Step,
    StepKind,
    announce,
    entered_holders,
    is_covered,
    next_step,
)
from kubeletx_flexvolume.agent.progress import REMOVALS, StepOutcome, begun, failed, recovered, succeeded
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.values import Holder, HolderKey

from plugins.flexvolume.tests.agent.agent_model import holder, journal

SOURCE = AttachedSource(type=SourceType.DEVICE, source="/dev/model0")


class Outcome(enum.Enum):
    """End of a step."""

    DONE = "done"
    FAILED_BEFORE = "failed before its effect"
    FAILED_AFTER = "failed after its effect"
    CRASH_BEFORE = "the agent was killed before its effect"
    CRASH_AFTER = "the agent was killed after its effect"


class Model:
    """A volume, the agent's memory and disk, and what really exists."""

    def __init__(self) -> None:
        self.memory: VolumeJournal = journal()
        self.disk: VolumeJournal | None = None
        self.boot = 1
        self.blocked: set[Step] = set()
        self.entries: set[HolderKey] = set()
        self.attached = False
        self.content = "blank"
        self.looked = False
        self.mounted = False
        self.bound: set[str] = set()
        self.faults: dict[StepKind, Outcome] = {}
        """Ends of the next steps of these kinds, if they are not done."""

    # --- what happens ---

    def want(self, number: int, read_only: bool) -> None:
        one = self._holder(number, read_only)
        use = self.memory.find(one.key) or Use(holder=one)
        if use.holder.read_only == read_only:
            self.memory = self.memory.with_use(msgspec.structs.replace(use, is_wanted=True))

    def leave(self, number: int) -> None:
        self.memory = self.memory.leave(self._holder(number).key)
        self.blocked.clear()

    def step(self, outcome: Outcome = Outcome.DONE) -> bool:
        """Do the next step, if there is one."""
        awaited = {use.key for use in self.memory.uses}
        step = next_step(self.memory, blocked=self.blocked, awaited=awaited)
        if step is None:
            self.disk = None if self.memory.is_empty else self.memory
            return False
        outcome = self.faults.pop(step.kind, outcome)
        if not is_covered(self.disk, step):
            self.disk = announce(self.memory, step)
            assert is_covered(self.disk, step)
        self.memory = begun(self.memory, step)
        result = StepOutcome()
        if outcome in (Outcome.DONE, Outcome.FAILED_AFTER, Outcome.CRASH_AFTER):
            result = self._effect(step)
        if outcome in (Outcome.CRASH_BEFORE, Outcome.CRASH_AFTER):
            self.check()
            self.crash()
        elif outcome is Outcome.DONE:
            self.memory = succeeded(self.memory, step, result)
            if step.kind is StepKind.CONFIRM:
                self.disk = self.memory
        else:
            self.memory = failed(self.memory, step)
            if step.kind in REMOVALS:
                self.blocked.add(step)
        self.check()
        return True

    def crash(self) -> None:
        self.blocked.clear()
        self.looked = False
        if self.disk is None:
            self.memory = journal(boot_id=f"boot-{self.boot}")
            return
        mounted_on = frozenset(self.bound)
        self.memory = recovered(self.disk, f"boot-{self.boot}", mounted_on)

    def reboot(self) -> None:
        self.boot += 1
        self.attached = self.mounted = False
        self.bound.clear()
        self.crash()

    # --- what must hold ---

    def check(self) -> None:
        """The order of parts, and that the disk has everything that exists."""
        if self.attached:
            assert self.entries, "a device without an entry"
        assert not self.mounted or self.attached
        assert not self.bound or self.mounted
        marked = self.disk or journal()
        assert not self.attached or marked.attached is not Mark.NO
        assert not self.mounted or marked.mounted is not Mark.NO
        for use_key in self.entries:
            use = marked.find(use_key)
            assert use is not None
            assert use.taken is not Mark.NO
        bound = {use.holder.mount_dir for use in marked.uses if use.bound is not Mark.NO}
        assert self.bound <= bound

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.attached or self.mounted or self.bound)

    # --- inside ---

    def _holder(self, number: int, read_only: bool = False) -> Holder:
        return holder(f"u{number}", boot=f"boot-{self.boot}", read_only=read_only)

    def _effect(self, step: Step) -> StepOutcome:
        use = self.memory.find(step.key) if step.key is not None else None
        match step.kind:
            case StepKind.TAKE if use is not None:
                self.entries.add(use.key)
                return StepOutcome(holder=use.holder)
            case StepKind.ATTACH:
                self.attached = True
                return StepOutcome(source=SOURCE)
            case StepKind.LOOK:
                assert self.attached
                self.looked = True
                if self.content == "half":
                    self.content = "repaired by hand"
                return StepOutcome(is_ready=self.content != "blank")
            case StepKind.FORMAT:
                assert self.looked, "formatted without a look"
                assert self.content == "blank", "formatted what was not blank"
                self.content = "half" if self.boot % 2 else "formatted"
            case StepKind.FINISH_FORMAT:
                assert self.memory.content is Content.FORMATTING
                assert self.content in ("blank", "half", "formatted")
                self.content = "formatted"
            case StepKind.MOUNT:
                self.mounted = True
                self.content = "data"
                return StepOutcome(is_writable=not all(one.holder.read_only for one in self.memory.staying))
            case StepKind.BIND if use is not None:
                assert self.mounted
                self.bound.add(use.holder.mount_dir)
            case StepKind.UNBIND if use is not None:
                self.bound.discard(use.holder.mount_dir)
            case StepKind.UNMOUNT:
                assert not self.bound, "unmounted below a pod"
                self.mounted = False
            case StepKind.DETACH:
                assert not self.mounted, "detached below a mount"
                self.attached, self.looked = False, False
            case StepKind.RELEASE if use is not None:
                self.entries.discard(use.key)
        return StepOutcome()


wishes = st.one_of(
    st.tuples(st.just("want"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("leave"), st.integers(1, 2)),
)
troubles = st.one_of(st.just(("crash",)), st.just(("reboot",)), st.just(("retry",)))
works = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 9)),
    st.tuples(st.just("steps"), st.just(20)),
    st.tuples(st.just("fault"), st.sampled_from(StepKind), st.sampled_from(Outcome)),
)
actions = st.one_of(wishes, works, works, works, troubles)


SCRIPTS: list[list[tuple[object, ...]]] = [
    [("want", 1, False), ("steps", 20), ("leave", 1), ("steps", 20)],
    [("want", 1, False), ("steps", 20), ("want", 2, False), ("leave", 1), ("steps", 20)],
    [("want", 1, True), ("want", 2, False), ("steps", 20), ("leave", 2), ("leave", 1), ("steps", 20)],
    [("want", 1, False), ("steps", 20), ("leave", 1), ("steps", 1), ("want", 2, False), ("steps", 20)],
    [("want", 1, False), ("steps", 20), ("crash",), ("leave", 1), ("steps", 2), ("crash",), ("steps", 20)],
    [("want", 1, False), ("steps", 20), ("reboot",), ("want", 1, False), ("steps", 20)],
    # the marks of a mount that a crash has ended cover those of the next one, but for its format
    [
        ("want", 1, False),
        ("steps", 1),
        ("crash",),
        ("want", 1, False),
        ("steps", 20),
        ("crash",),
        ("steps", 20),
    ],
]


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.DONE])
@pytest.mark.parametrize("kind", StepKind)
def test_every_step_may_end_in_any_way(kind: StepKind, outcome: Outcome) -> None:
    for script in SCRIPTS:
        play([("fault", kind, outcome), *script])


@settings(max_examples=1000, deadline=None)
@given(st.lists(actions, max_size=25))
def test_nothing_exists_unmarked_and_everything_can_be_removed(history: list[tuple[object, ...]]) -> None:
    play(history)


@pytest.mark.parametrize("steps", [7, 8])
def test_what_was_undone_after_the_last_write_is_not_believed_after_a_crash(steps: int) -> None:
    """Step 7 detaches the device after the failed mount, and step 8 removes the entry; the disk has both."""
    failed_mount = ("fault", StepKind.MOUNT, Outcome.FAILED_BEFORE)
    play([("want", 1, True), failed_mount, ("steps", steps), ("crash",), ("want", 1, True), ("steps", 1)])


def play(history: list[tuple[object, ...]]) -> None:
    """Check a model after each action, and that everything can be removed in the end."""
    model = Model()
    for action in history:
        match action:
            case "want", int(number), bool(read_only):
                model.want(number, read_only)
            case "leave", int(number):
                model.leave(number)
            case "fault", StepKind() as kind, Outcome() as outcome:
                model.faults[kind] = outcome
            case "steps", int(number):
                for _ in range(number):
                    model.step()
            case ("retry",):
                model.blocked.clear()
            case ("crash",):
                model.crash()
            case ("reboot",):
                model.reboot()
        model.check()
    model.memory = model.memory.leave()
    model.blocked.clear()
    model.faults.clear()
    for _ in range(60):
        if not model.step():
            break
    assert model.is_empty
    assert model.memory.is_empty
    assert model.disk is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(Outcome), max_size=30))
def test_a_wanted_volume_is_mounted_in_the_end(outcomes: list[Outcome]) -> None:
    model = Model()
    for outcome in outcomes:
        model.want(1, False)
        model.step(outcome)
    model.want(1, False)
    model.blocked.clear()
    for _ in range(60):
        model.want(1, False)
        if not model.step():
            break
    assert len(model.bound) == 1
    assert [use.is_mounted for use in model.memory.uses] == [True]


def test_a_volume_is_not_mounted_for_a_pod_whose_caller_is_gone() -> None:
    made = journal(
        uses=(Use(holder=holder(), taken=Mark.YES),),
        attached=Mark.YES,
        source=SOURCE,
        mounted=Mark.YES,
        is_writable=True,
    )
    assert next_step(made) is None
    assert next_step(made, awaited={holder().key}) == Step(StepKind.BIND, holder().key)


def test_a_blocked_unmount_blocks_the_detach_and_the_release() -> None:
    made = journal(
        uses=(Use(holder=holder(), is_wanted=False, taken=Mark.YES),),
        attached=Mark.YES,
        source=SOURCE,
        mounted=Mark.MAY,
    )
    assert next_step(made) == Step(StepKind.UNMOUNT)
    assert next_step(made, blocked={Step(StepKind.UNMOUNT)}) is None


def test_a_forced_volume_is_not_formatted() -> None:
    made = journal(
        uses=(Use(holder=holder(), is_wanted=False, taken=Mark.YES),),
        attached=Mark.MAY,
        content=Content.FORMATTING,
    )
    assert next_step(made) == Step(StepKind.FINISH_FORMAT)
    assert next_step(msgspec.structs.replace(made, is_forced=True)) == Step(StepKind.DETACH)


@pytest.mark.parametrize(
    ("second", "expected"), [(Mark.YES, ["u2"]), (Mark.MAY, ["u1", "u2"]), (Mark.NO, ["u1"])]
)
def test_holders_are_those_whose_entries_must_stay(second: Mark, expected: list[str]) -> None:
    made = journal(
        uses=(
            Use(holder=holder("u1"), is_wanted=False, taken=Mark.YES),
            Use(holder=holder("u2"), taken=second),
        )
    )
    assert [one.pod_uid for one in entered_holders(made)] == expected


def test_an_attachment_without_a_source_is_a_bug() -> None:
    with pytest.raises(TypeError, match="step ATTACH cannot have the outcome"):
        succeeded(journal(), Step(StepKind.ATTACH), StepOutcome())
