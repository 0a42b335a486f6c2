"""Scripted faults for fakes: delays, errors and hangs of single calls.

A test adds a `Script` before the code under test runs. The script affects the next calls of one method, to simulate a
runtime that is slow, fails, or never answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kubeletx.api import Clock, KubeletxError

ANY = "*"
"""Value of `Script.call` that matches every method."""


@dataclass(kw_only=True, eq=False)
class Script:
    """A fault in calls of the method `call`.

    `times`: number of calls that it affects; None: all until `stop` is called. An affected call first waits
    `delay_seconds` on the injected clock; if `hang` is set, it then waits until `release` is called; then it
    raises `error` if that is set. `after_effect`: this happens after the call took effect, as with a lost
    answer; otherwise before. `key`: affect only calls about this id; empty: any. `hits`: number of calls
    affected so far.
    """

    call: str
    times: int | None = None
    delay_seconds: float = 0.0
    hang: bool = False
    error: KubeletxError | None = None
    after_effect: bool = False
    key: str = ""
    hits: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def release(self) -> None:
        """Let hanging calls continue. Later calls do not hang, either."""
        self._released.set()

    def stop(self) -> None:
        """Affect no further calls, and let hanging calls continue."""
        self.times = 0
        self.release()

    def matches(self, call: str, key: str) -> bool:
        """Return True if the script affects calls of `call` about `key`, and `times` is not used up."""
        return (
            (self.times is None or self.hits < self.times)
            and self.call in (call, ANY)
            and self.key in ("", key)
        )

    async def play(self, clock: Clock) -> None:
        """Wait and raise as scripted. `clock`: measures the delay."""
        if self.delay_seconds:
            await clock.sleep(self.delay_seconds)
        if self.hang:
            await self._released.wait()
        if self.error is not None:
            raise self.error


class Scripts:
    """The scripts of one fake. A call uses the oldest script that matches it."""

    def __init__(self, clock: Clock) -> None:
        """`clock`: measures the delays of the scripts."""
        self._clock = clock
        self._scripts: list[Script] = []

    def add(self, script: Script) -> Script:
        """Add a script and return it."""
        self._scripts.append(script)
        return script

    def clear(self) -> None:
        """Stop and remove every script; hanging calls continue."""
        for script in self._scripts:
            script.stop()
        self._scripts.clear()

    def pick(self, call: str, key: str) -> Script | None:
        """Return the oldest script that affects this call, and increase its `hits`; None if there is no such script."""
        for script in self._scripts:
            if script.matches(call, key):
                script.hits += 1
                return script
        return None

    async def play(self, script: Script | None, *, after_effect: bool) -> None:
        """Play `script` if its attribute `after_effect` equals the argument. `script` None: do nothing.

        A fake calls this twice in each call: with False before the call takes effect, with True afterwards.
        """
        if script is not None and script.after_effect is after_effect:
            await script.play(self._clock)
