"""`ProbeSet`: the running probes of one pod.

    sync(targets) ──► one task per (unit, kind of probe)

A unit is a container or a machine.

    task:  [random part of a period, after a restart of the agent]
           [initial delay, from the unit's start]
           ┌► wait until the unit is neither paused nor suspended, and, unless this is the startup probe,
           │  until the startup probe passed
           │  ask ─► tally ─► value changed: on_result
           └─ period      └─ liveness or startup failed, or startup passed: end until another unit or boot

A result is dropped if the unit was paused at any time during the attempt. A pause resets readiness and all counts of
failures. When the unit runs again, readiness is probed at once, and liveness after one period. While the unit is being
stopped, or changed by an operator's command, only readiness is probed; if it survives, the other probes resume after
their initial delay. Each task costs one timer while it sleeps. Source: kubelet, prober/worker.go.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, EventSink, ObjectRef, UnitId
from kubeletx.api.counting import LabelledDurations
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Probe

from ..model.facts import ProbeFacts
from .ask import ask as ask_probe
from .exec import ExecFinder
from .outcome import ProbeKind, ProbeOutcome, ProbeResult, Tally, Timing, first_tally, is_on_hold, tally
from .targets import ProbeTarget

log = structlog.get_logger(__name__)

OnResult = Callable[[str, ProbeFacts], None]
"""Called with a container's name and its probe values when a value changes."""
Ask = Callable[[Probe, ProbeTarget, ExecFinder], Awaitable[ProbeResult]]


class ProbeSet:
    """Runs the probes of one pod, each in a task. Call `sync` with all units to probe; `close` ends all tasks."""

    def __init__(
        self,
        *,
        ref: ObjectRef,
        finder: ExecFinder,
        clock: Clock,
        events: EventSink,
        on_result: OnResult,
        ask: Ask = ask_probe,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`ref`: the pod, for events. `finder`: gives exec probes the runtime's exec.

        `draw`: returns a random number from 0 to 1, to spread probes after a restart of the agent.
        """
        self.ref, self._finder, self._clock, self._events = ref, finder, clock, events
        self._on_result, self._ask, self._draw = on_result, ask, draw
        self._watches: dict[str, _Watch] = {}
        self.counts: Counter[tuple[str, ProbeKind, ProbeOutcome]] = Counter()
        """Number of attempts by container, kind of probe and outcome, since the pod's first probe."""
        self.durations = LabelledDurations()
        """Durations of attempts by container and kind of probe."""
        self._ending: set[asyncio.Task[None]] = set()

    def sync(self, targets: Sequence[ProbeTarget]) -> None:
        """Start, stop and update probes so that exactly `targets` are probed.

        It is quick: the pod's worker may call it in every round.
        """
        present = {target.name: target for target in targets}
        for name, watch in list(self._watches.items()):
            target = present.get(name)
            if target is None or target.unit_id != watch.target.unit_id:
                self._drop(name)
            elif watch.is_over(target):
                self._drop(name)
                self._watches[name] = _Watch(target, delays_from_now=True)
        for target in targets:
            if target.name not in self._watches:
                self._watches[target.name] = _Watch(target, delays_from_now=target.delays_from_now)
            watch = self._watches[target.name]
            if watch.update(target):
                self._begin_again(watch)
            self._match(watch)
            if watch.has_reported and target.known != watch.reported:
                self._on_result(target.name, watch.reported)

    async def close(self) -> None:
        """End all probes and wait until their tasks have ended."""
        for name in list(self._watches):
            self._drop(name)
        await asyncio.gather(*self._ending, return_exceptions=True)

    @property
    def running(self) -> int:
        """Number of probe tasks of the pod that run now."""
        return sum(not task.done() for watch in self._watches.values() for task in watch.tasks.values())

    def _drop(self, name: str) -> None:
        for task in self._watches.pop(name).tasks.values():
            self._end(task)

    def _begin_again(self, watch: _Watch) -> None:
        """End the tasks of a unit that was paused and runs again; `_match` starts new ones."""
        for task in watch.tasks.values():
            self._end(task)
        watch.woken.update(watch.tasks)
        watch.tasks.clear()

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _match(self, watch: _Watch) -> None:
        for kind in ProbeKind:
            probe = watch.target.probe(kind)
            is_wanted = probe is not None and (not watch.target.is_stopping or kind is ProbeKind.READINESS)
            task = watch.tasks.get(kind)
            if task is not None and not is_wanted:
                self._end(watch.tasks.pop(kind))
                watch.resumes.add(kind)  # the stop may fail, or be only a command's change: it goes on then
            elif task is None and is_wanted and probe is not None:
                watch.tasks[kind] = asyncio.create_task(
                    self._run(watch, kind, probe),
                    name=f"{kind.value.lower()} probe {self.ref.namespace}/{self.ref.name}/{watch.target.name}",
                )

    async def _run(self, watch: _Watch, kind: ProbeKind, probe: Probe) -> None:
        timing = Timing.of(probe)
        if is_on_hold(kind, watch.tallies[kind]):
            return
        if kind is ProbeKind.STARTUP and watch.target.was_started:
            self._take(watch, kind, Tally(value=True, is_decided=True))
            return
        delay = self._first_delay(watch.target, timing, is_woken=kind in watch.woken)
        if kind in watch.resumes:
            delay = timing.initial_delay_seconds  # the command may have been a reboot
        if kind is ProbeKind.LIVENESS and kind in watch.woken:
            delay = max(delay, timing.period_seconds)  # a hibernated unit is slow at first
        await self._clock.sleep(delay)
        watch.resumes.discard(kind)  # a later freeze does not repeat the delay
        watch.woken.discard(kind)
        while True:
            await watch.may_ask(kind)
            asked_at, rests = self._clock.monotonic(), watch.rests
            answer = await self._ask_safely(probe, watch)
            self.durations.add(self._clock.monotonic() - asked_at, watch.target.name, kind.value)
            # Otherwise the container was frozen during the attempt, so its time-out says nothing about the container.
            if rests == watch.rests:
                self.counts[watch.target.name, kind, answer.result] += 1
                self._tell(watch.target, kind, answer)
                self._take(watch, kind, tally(watch.tallies[kind], answer, timing))
                if is_on_hold(kind, watch.tallies[kind]):
                    return
            await self._clock.sleep(asked_at + timing.period_seconds - self._clock.monotonic())

    def _first_delay(self, target: ProbeTarget, timing: Timing, *, is_woken: bool) -> float:
        delay = 0.0
        if timing.initial_delay_seconds and target.started_at is not None:
            age = (self._clock.now() - target.started_at).total_seconds()
            delay = timing.initial_delay_seconds - min(max(age, 0.0), timing.initial_delay_seconds)
        if is_woken:
            return delay
        if target.was_ready is not None or target.was_started is not None:
            delay = max(delay, self._draw() * timing.period_seconds)
        return delay

    async def _ask_safely(self, probe: Probe, watch: _Watch) -> ProbeResult:
        try:
            return await self._ask(probe, watch.target, self._finder)
        except Exception as error:
            log.exception("Probe failed with a bug", pod=self._pod, container=watch.target.name)
            return ProbeResult(ProbeOutcome.UNKNOWN, f"{type(error).__name__}: {error}")

    def _take(self, watch: _Watch, kind: ProbeKind, now: Tally) -> None:
        """Store the probe's new state; report the unit's values if they changed."""
        watch.tallies[kind] = now
        if kind is ProbeKind.STARTUP and now.value:
            watch.started.set()
        values = watch.values()
        if values == watch.reported:
            return
        watch.reported, watch.has_reported = values, True
        # A unit that rests and runs again gets the value that it had: no news.
        level = log.debug if watch.logged.get(kind) == now.value else log.info
        watch.logged[kind] = now.value
        level(
            "Changed probe value",
            pod=self._pod,
            container=watch.target.name,
            probe=kind.value.lower(),
            value=now.value,
        )
        self._on_result(watch.target.name, values)

    def _tell(self, target: ProbeTarget, kind: ProbeKind, answer: ProbeResult) -> None:
        match answer.result:
            case ProbeOutcome.FAILURE:
                reason, text = Event.UNHEALTHY, f"{kind.value} probe failed: {answer.message}"
            case ProbeOutcome.UNKNOWN:
                reason, text = (
                    Event.UNHEALTHY,
                    f"{kind.value} probe errored and resulted in unknown state: {answer.message}",
                )
            case ProbeOutcome.WARNING:
                reason, text = Event.PROBE_WARNING, f"{kind.value} probe warning: {answer.message}"
            case _:
                return
        ref = replace(self.ref, field=target.field)
        self._events.record(ref, type="Warning", reason=reason, message=text)

    @property
    def _pod(self) -> str:
        return f"{self.ref.namespace}/{self.ref.name}"


class _Watch:
    """States and tasks of the probes of one container, or of one boot of a machine.

    `delays_from_now`: initial delays count from now instead of from the start of the unit.
    """

    def __init__(self, target: ProbeTarget, *, delays_from_now: bool = False) -> None:
        self.target = target
        self.boot = target.boot
        self.tasks: dict[ProbeKind, asyncio.Task[None]] = {}
        self.resumes: set[ProbeKind] = set(ProbeKind) if delays_from_now else set()
        self.tallies: dict[ProbeKind, Tally] = {kind: first_tally(kind) for kind in ProbeKind}
        if target.was_ready is not None:
            self.tallies[ProbeKind.READINESS] = first_tally(ProbeKind.READINESS, target.was_ready)
        self.logged: dict[ProbeKind, bool | None] = {}
        """Value of each probe that was logged last."""
        self.woken: set[ProbeKind] = set()
        """Probes that began again because the unit was paused and runs again, until their first delay has passed."""
        self.rests = 0
        """Number of times that the probes of the unit began to wait."""
        self.awake = asyncio.Event()
        self.started = asyncio.Event()
        if target.probe(ProbeKind.STARTUP) is None:
            self.started.set()
        self.reported = self.values()
        self.has_reported = False

    def is_over(self, target: ProbeTarget) -> bool:
        """Return True if the machine has rebooted since this object was made, so that its probes must begin again."""
        if not self.boot:
            return target.delays_from_now
        return bool(target.boot) and self.boot != target.boot

    def update(self, target: ProbeTarget) -> bool:
        """Replace the target, which has the unit's present state; probes wait while the unit does not run or is held.

        Return True if the unit was paused or suspended and runs again.
        """
        before, self.target = self.target, target
        self.boot = self.boot or target.boot
        if target.is_resting or target.is_held:
            if not (before.is_resting or before.is_held):
                self.rests += 1
            self.awake.clear()
        else:
            self.awake.set()
        if target.is_resting and not before.is_resting:
            self._forget_counts()
        return before.is_resting and not target.is_resting

    def _forget_counts(self) -> None:
        for kind, now in self.tallies.items():
            if not is_on_hold(kind, now):
                self.tallies[kind] = first_tally(kind)
        values = self.values()
        if values != self.reported:
            self.reported, self.has_reported = values, True

    async def may_ask(self, kind: ProbeKind) -> None:
        """Wait until the unit is not paused or suspended and, unless `kind` is the startup probe, has started."""
        while True:
            if kind is not ProbeKind.STARTUP:
                await self.started.wait()
            await self.awake.wait()
            if kind is ProbeKind.STARTUP or self.started.is_set():
                return

    def values(self) -> ProbeFacts:
        """Return the value of each probe that has reached a threshold, and None for the others."""
        return ProbeFacts(
            unit_id=UnitId(self.target.unit_id),
            boot=self.boot,
            readiness=self._decided(ProbeKind.READINESS),
            liveness=self._decided(ProbeKind.LIVENESS),
            startup=self._decided(ProbeKind.STARTUP),
        )

    def _decided(self, kind: ProbeKind) -> bool | None:
        now = self.tallies[kind]
        return now.value if now.is_decided else None
