"""Base class of the fake runtime, which records calls, and simulates faults and latency."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from kubeletx.api import Clock, Conflict, EventKind, KubeletxError, Unavailable, UnitId, UnitState

from .fake_backend import FakeBackend, FakeUnit
from .faults import Script, Scripts

T = TypeVar("T")

JOURNAL_LIMIT = 100_000


class RecordedCall(NamedTuple):
    """One call that a fake runtime received. `key`: what the call was about, such as a unit's id.

    `at`: monotonic time of the call on the fake's clock.
    """

    method: str
    key: str
    at: float


class FakeCalls:
    """Base class of `FakeRuntime`. It counts and records the runtime's calls, and lets them fail as scripted.

    `journal`: the recorded calls, oldest first. `counts`: number of calls by method.
    """

    def __init__(
        self, name: str, *, clock: Clock, backend: FakeBackend, latency: Mapping[str, float] | None
    ) -> None:
        """`latency`: seconds on the clock that each call takes, by method name; None: no latency."""
        self.name = name
        self.clock = clock
        self.backend = backend
        self.latency = dict(latency or {})
        self.scripts = Scripts(clock)
        self.counts: Counter[str] = Counter()
        self.journal: deque[RecordedCall] = deque(maxlen=JOURNAL_LIMIT)

    def script(
        self,
        call: str,
        *,
        times: int | None = None,
        delay_seconds: float = 0.0,
        hang: bool = False,
        error: KubeletxError | None = None,
        after_effect: bool = False,
        key: str = "",
    ) -> Script:
        """Add a fault for the next calls of the method `call` ("*": any method) and return it.

        The arguments are the fields of `Script`.
        """
        return self.scripts.add(
            Script(
                call=call,
                times=times,
                delay_seconds=delay_seconds,
                hang=hang,
                error=error,
                after_effect=after_effect,
                key=key,
            )
        )

    def calls(self, method: str) -> list[RecordedCall]:
        """Return the recorded calls of one method, oldest first."""
        return [call for call in self.journal if call.method == method]

    def _alive(self, unit_id: UnitId) -> FakeUnit:
        unit = self.backend.unit(unit_id)
        if not unit.summary.state.is_alive:
            raise Conflict(f"unit {unit_id} is {unit.summary.state.value}")
        return unit

    async def _move(self, method: str, unit_id: UnitId, allowed: set[UnitState], to: UnitState) -> None:
        await self._call(method, unit_id, lambda: self._change(method, unit_id, allowed, to))

    def _change(self, method: str, unit_id: UnitId, allowed: set[UnitState], to: UnitState) -> None:
        state = self.backend.unit(unit_id).summary.state
        if state is to:
            return
        if state not in allowed:
            raise Conflict(f"cannot {method} unit {unit_id}: it is {state.value}")
        self.backend.set_state(unit_id, to, EventKind.CHANGED)

    async def _enter(self, method: str, key: str) -> Script | None:
        self.counts[method] += 1
        self.journal.append(RecordedCall(method, key, self.clock.monotonic()))
        script = self.scripts.pick(method, key)
        if (seconds := self.latency.get(method)) is not None:
            await self.clock.sleep(seconds)
        await self.scripts.play(script, after_effect=False)
        if not self.backend.alive:
            raise Unavailable(f"runtime {self.name} does not answer")
        return script

    async def _call(self, method: str, key: str, effect: Callable[[], T]) -> T:
        script = await self._enter(method, key)
        result = effect()
        await self.scripts.play(script, after_effect=True)
        return result
