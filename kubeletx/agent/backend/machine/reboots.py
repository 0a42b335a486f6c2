"""Delayed reboots of virtual machines: the agent waits for the delay, so that no runtime call is open meanwhile."""

from __future__ import annotations

import asyncio

from kubeletx.api import Clock, Conflict, PodUid, first_of
from kubeletx.pods import PodWorker


class RebootCancelled(Conflict):
    """Raised by `DelayedReboots.wait_out` when the delayed reboot is cancelled. The message has the reason."""


class DelayedReboots:
    """Waits for the delay of reboots of virtual machines, at most one per machine; a wait can be cancelled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[PodUid, asyncio.Future[str]] = {}

    def cancel(self, uid: PodUid, why: str) -> bool:
        """Cancel the delayed reboot of a machine; returns False if none is waiting.

        `uid`: the machine's pod. `why`: message of the `RebootCancelled` that `wait_out` raises.
        """
        waiting = self._waiting.get(uid)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(why)
        return True

    async def wait_out(self, worker: PodWorker, seconds: float) -> None:
        """Wait `seconds`, the delay of the machine's reboot; the caller then reboots it.

        Raises RebootCancelled as soon as `cancel` is called, and Conflict as soon as the pod is deleted.
        """
        cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[worker.uid] = cancelled
        try:
            name = f"reboot-{worker.uid}-delay"
            await first_of(name, cancelled, self._clock.sleep(seconds), worker.ending.wait())
        finally:
            self._waiting.pop(worker.uid, None)
        if worker.ending.is_set():
            raise Conflict(f"pod {worker.desired.ref} was deleted before its machine was to reboot")
        if cancelled.done():
            raise RebootCancelled(cancelled.result())
