"""Steps of one volume: their order, and what a failure changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.cleanup.sequence import (
    DELETE_TRIES,
    CleanupStep,
    StepResult,
    VolumeCleanup,
    after_step,
)

from kubeletx.kube.types.meta import ObjectReference
from plugins.flexvolume.tests.attachments.attachment_model import volume

CLUSTER = ObjectReference(kind="StorageCluster", namespace="storage", name="main")
ORDER = list(CleanupStep)


def begun(step: CleanupStep = CleanupStep.DELETE_CLAIM) -> VolumeCleanup:
    return VolumeCleanup(volume=volume(cluster="storage/main"), cluster=CLUSTER, step=step)


def test_a_clean_up_without_failures_has_five_steps() -> None:
    state, steps = begun(), []
    while state.step is not CleanupStep.DONE:
        steps.append(state.step)
        state = after_step(state, StepResult.DONE)
    assert steps == ORDER[:-1]
    assert state.cluster_key == "storage/main"


@pytest.mark.parametrize("result", [StepResult.FAILED, StepResult.UNKNOWN])
@pytest.mark.parametrize(
    ("step", "tries"),
    [
        (CleanupStep.DELETE_CLAIM, DELETE_TRIES),
        (CleanupStep.UNMAP, 1),
        (CleanupStep.DELETE_VOLUME, DELETE_TRIES),
    ],
)
def test_some_steps_are_given_up(step: CleanupStep, tries: int, result: StepResult) -> None:
    state = begun(step)
    for number in range(tries):
        assert (state.step, state.tries) == (step, number)
        state = after_step(state, result)
    assert (state.step, state.tries) == (ORDER[ORDER.index(step) + 1], 0)


@given(st.lists(st.sampled_from(list(StepResult)), max_size=60))
def test_no_volume_is_done_before_it_is_unmounted_and_out_of_the_record(results: list[StepResult]) -> None:
    state, done = begun(), set()
    for result in results:
        if result is StepResult.DONE:
            done.add(state.step)
        after = after_step(state, result)
        assert ORDER.index(after.step) - ORDER.index(state.step) in (0, 1)
        state = after
    if state.step is CleanupStep.DONE:
        assert {CleanupStep.UNMOUNT, CleanupStep.REMOVE_RECORD} <= done
