"""Scripted faults for fakes: delays, failures and hangs, per call.

A `Script` decides what happens to the next calls of one method: a runtime that is slow, fails, or never answers. A test
adds it before the code under test runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kubeletx.api import Clock, KubeletxError

ANY = "*"
"""Matches every method."""


@dataclass(kw_only=True, eq=False)
class Script:
    """Faults of calls of `call`.

    `times`: number of calls it applies to (None: all until `stop`). `delay_seconds`: waited on the injected clock
    first. `hang`: then wait until `release`. `error`: then raise. `after_effect`: delay, hang and error come after the
    call took effect, as with a lost answer. `key`: only calls for this id.
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
        """Continue hung calls; later ones do not hang."""
        self._released.set()

    def stop(self) -> None:
        """Stop applying the script; hung calls continue."""
        self.times = 0
        self.release()

    def matches(self, call: str, key: str) -> bool:
        """Return True if the script still applies to this call."""
        return (
            (self.times is None or self.hits < self.times)
            and self.call in (call, ANY)
            and self.key in ("", key)
        )

    async def play(self, clock: Clock) -> None:
        """Wait, hang and fail as scripted."""
        if self.delay_seconds:
            await clock.sleep(self.delay_seconds)
        if self.hang:
            await self._released.wait()
        if self.error is not None:
            raise self.error


class Scripts:
    """The scripts of one fake, oldest first; the first that matches a call is played."""

    def __init__(self, clock: Clock) -> None:
        """`clock`: delays are measured on it."""
        self._clock = clock
        self._scripts: list[Script] = []

    def add(self, script: Script) -> Script:
        """Add a script and return it."""
        self._scripts.append(script)
        return script

    def clear(self) -> None:
        """Stop every script; hung calls continue."""
        for script in self._scripts:
            script.stop()
        self._scripts.clear()

    def pick(self, call: str, key: str) -> Script | None:
        """The script for this call, counted as used; None if there is none."""
        for script in self._scripts:
            if script.matches(call, key):
                script.hits += 1
                return script
        return None

    async def play(self, script: Script | None, *, after_effect: bool) -> None:
        """Play `script` if it applies before, or after, the effect as given."""
        if script is not None and script.after_effect is after_effect:
            await script.play(self._clock)
