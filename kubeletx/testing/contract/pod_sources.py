"""The contract suite for plugins' pod sources (`kubeletx.api.PodSource`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from kubeletx.api import PodSource

from ..pod_sink import FakePodSink
from .held import LONGEST_SECONDS, stepwise

PATIENCE_SECONDS = 20.0


class PodSourceContract:
    """Tests that every implementation of `kubeletx.api.PodSource` must pass.

    Subclass it and define the fixtures `make_source`, `add` and `remove`.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_source(self) -> Callable[[], PodSource]:
        """Function that returns a new pod source, as the plugin's factory does. You must override this.

        A test calls the function again to simulate a restart of the agent, so all sources that it returns must
        read the same backend. If they wait on the clock, give their plugin host a
        ``FakeClock(auto_advance=True)``.
        """
        raise NotImplementedError("override the fixture make_source in your subclass of PodSourceContract")

    @pytest.fixture
    def add(self) -> Callable[[str], None]:
        """Function that adds a valid pod of the given name, in namespace default, to the source's backend.

        You must override this.
        """
        raise NotImplementedError("override the fixture add in your subclass of PodSourceContract")

    @pytest.fixture
    def remove(self) -> Callable[[str], None]:
        """Function that removes the pod of the given name from the source's backend. You must override this."""
        raise NotImplementedError("override the fixture remove in your subclass of PodSourceContract")

    async def test_everything_is_set_before_it_reports_synced(
        self, make_source: Callable[[], PodSource], add: Callable[[str], None]
    ) -> None:
        add("one")
        add("two")
        async with running(make_source()) as sink:
            await until(lambda: sink.is_synced)
            assert set(sink.pods) == {"default/one", "default/two"}
            assert sink.refused == []

    async def test_a_source_without_pods_reports_synced(self, make_source: Callable[[], PodSource]) -> None:
        async with running(make_source()) as sink:
            await until(lambda: sink.is_synced)
            assert sink.pods == {}

    async def test_a_pod_that_comes_later_is_set_and_one_that_goes_is_removed(
        self,
        make_source: Callable[[], PodSource],
        add: Callable[[str], None],
        remove: Callable[[str], None],
    ) -> None:
        add("one")
        async with running(make_source()) as sink:
            await until(lambda: sink.is_synced)
            add("two")
            await until(lambda: "default/two" in sink.pods)
            remove("one")
            await until(lambda: "default/one" not in sink.pods)

    async def test_a_refused_pod_does_not_stop_the_others(
        self, make_source: Callable[[], PodSource], add: Callable[[str], None]
    ) -> None:
        sink = FakePodSink()
        sink.refuses.add("bad")
        add("bad")
        add("good")
        async with running(make_source(), sink):
            await until(lambda: sink.is_synced)
            assert set(sink.pods) == {"default/good"}

    async def test_it_runs_again_after_it_was_cancelled_and_sets_everything_again(
        self, make_source: Callable[[], PodSource], add: Callable[[str], None]
    ) -> None:
        add("one")
        source = make_source()
        for one in (source, source, make_source()):
            async with running(one) as sink:
                await until(lambda: sink.is_synced)
                assert set(sink.pods) == {"default/one"}


@contextlib.asynccontextmanager
async def running(source: PodSource, sink: FakePodSink | None = None) -> AsyncIterator[FakePodSink]:
    """Context manager that runs the source during the block; yields the sink that gets its pods.

    `sink` None: a new one. Fails the test if the source ends by itself, ignores its cancellation or blocks the
    event loop.
    """
    sink = sink or FakePodSink()
    steps: list[float] = []
    task = asyncio.create_task(_run(source, sink, steps), name="pod source")
    try:
        yield sink
        assert not task.done(), f"the run ended by itself: {task!r}"
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
    assert task.cancelled(), "run does not end when it is cancelled"
    assert max(steps) <= LONGEST_SECONDS, f"run held the event loop for {max(steps):.2f} s"


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true; fails the test after `PATIENCE_SECONDS`."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"waited {PATIENCE_SECONDS:g} s for the source")
        await asyncio.sleep(0.01)


async def _run(source: PodSource, sink: FakePodSink, steps: list[float]) -> None:
    await stepwise(source.run(sink), steps)
