"""The contract suite for plugins' pod sources (`kubeletx.api.PodSource`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from kubeletx.api import PodSource

from ..pod_sink import FakePodSink
from .calls import PluginCalls, PluginFault, plugin_of
from .failures import about
from .shared import Maker, NewObject, SuiteBase

PATIENCE_SECONDS = 20.0


class PodSourceContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.PodSource` must pass.

    Subclass it and define the fixtures `make_source`, `add` and `remove`.
    """

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

    @pytest.fixture
    def new_source(self, make_source: Callable[[], PodSource], maker: Maker) -> NewObject[PodSource]:
        """The function of `make_source`; the runs of its sources are watched."""
        return maker.of(make_source, PodSource)

    @about("run")
    async def test_everything_is_set_before_it_reports_synced(
        self, new_source: NewObject[PodSource], add: Callable[[str], None]
    ) -> None:
        add("one")
        add("two")
        async with running(new_source.calls, new_source()) as run:
            await run.synced()
            assert set(run.sink.pods) == {"default/one", "default/two"}
            assert run.sink.refused == []

    @about("run")
    async def test_a_source_without_pods_reports_synced(self, new_source: NewObject[PodSource]) -> None:
        async with running(new_source.calls, new_source()) as run:
            await run.synced()
            assert run.sink.pods == {}

    @about("run")
    async def test_a_pod_that_comes_later_is_set_and_one_that_goes_is_removed(
        self,
        new_source: NewObject[PodSource],
        add: Callable[[str], None],
        remove: Callable[[str], None],
    ) -> None:
        add("one")
        async with running(new_source.calls, new_source()) as run:
            await run.synced()
            add("two")
            await run.until(lambda: "default/two" in run.sink.pods, "default/two was set after it was added")
            remove("one")
            await run.until(lambda: "default/one" not in run.sink.pods, "default/one was removed")

    @about("run")
    async def test_a_refused_pod_does_not_stop_the_others(
        self, new_source: NewObject[PodSource], add: Callable[[str], None]
    ) -> None:
        sink = FakePodSink()
        sink.refuses.add("bad")
        add("bad")
        add("good")
        async with running(new_source.calls, new_source(), sink) as run:
            await run.synced()
            assert set(run.sink.pods) == {"default/good"}

    @about("run")
    async def test_it_runs_again_after_it_was_cancelled_and_sets_everything_again(
        self, new_source: NewObject[PodSource], add: Callable[[str], None]
    ) -> None:
        add("one")
        source = new_source()
        for each in (source, source, new_source()):
            async with running(new_source.calls, each) as run:
                await run.synced()
                assert set(run.sink.pods) == {"default/one"}


class SourceRun(NamedTuple):
    """One run of a source. `sink`: gets its pods. `task`: the call of `run`."""

    sink: FakePodSink
    task: asyncio.Task[Any]

    async def synced(self) -> None:
        """Wait until the source has called `synced`."""
        await self.until(lambda: self.sink.is_synced, "synced was called")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true. Raises PluginFault after `PATIENCE_SECONDS`, or if `run` has ended.

        `what`: the condition in words.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not condition():
            self.check()
            if asyncio.get_running_loop().time() > deadline:
                refused = f"; refused were: {self.sink.refused}" if self.sink.refused else ""
                raise PluginFault(
                    f"waited {PATIENCE_SECONDS:g} s until {what}; set are {sorted(self.sink.pods)}{refused}"
                )
            await asyncio.sleep(0.01)

    def check(self) -> None:
        """Raise the error of `run`, or PluginFault if it has returned."""
        if self.task.cancelled():
            raise PluginFault("run raised CancelledError although it was not cancelled")
        if self.task.done():
            raise self.task.exception() or PluginFault("run returned; it runs until it is cancelled")


@contextlib.asynccontextmanager
async def running(
    calls: PluginCalls, source: PodSource, sink: FakePodSink | None = None
) -> AsyncIterator[SourceRun]:
    """Context manager that runs the source during the block. `sink` None: a new one.

    Raises PluginFault if the source ends by itself or ignores its cancellation.
    """
    sink = sink or FakePodSink()
    run = SourceRun(sink, calls.start("run", plugin_of(source).run, sink))
    try:
        yield run
        run.check()
    finally:
        await calls.cancel("run", run.task)
