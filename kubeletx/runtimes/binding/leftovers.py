"""Removes sandboxes and containers of pods that were ended by force (see `tombstones`), once their runtime answers."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kubeletx.api import Clock, Conflict, KubeletxError
from kubeletx.api.backoff import Backoff

from ..handles.handle import RuntimeHandle
from .tombstones import Tombstone, Tombstones

log = structlog.get_logger(__name__)


async def clear_leftovers(
    handle: RuntimeHandle, tombstones: Tombstones, clock: Clock, *, on_cleared: Callable[[], None]
) -> None:
    """Remove what is left on a runtime of pods that were ended by force while it did not answer, until cancelled.

    Each of these pods has a tombstone in `tombstones`. Its sandboxes and containers are stopped and removed, then the
    tombstone. `on_cleared`: called after each removed tombstone, since a new pod with the same UID may wait for that.
    """
    backoff = Backoff(1.0, 60.0)
    while True:
        failed = False
        for stone in await tombstones.wait_for(handle.name):
            try:
                await _clear(handle, stone)
            except KubeletxError as error:
                failed = True
                log.debug("Failed to clear leftovers", runtime=handle.name, pod_uid=stone.uid, err=str(error))
                continue
            await tombstones.remove(stone.uid, handle.name)
            handle.forget(stone.uid)
            log.info(
                "Cleared leftovers of a pod that was ended by force", runtime=handle.name, pod_uid=stone.uid
            )
            on_cleared()
        if failed:
            await clock.sleep(backoff.next())
        else:
            backoff.reset()


async def _clear(handle: RuntimeHandle, stone: Tombstone) -> None:
    snapshot = await handle.look(stone.uid)
    for sandbox in snapshot.sandboxes:
        await handle.stop_sandbox(sandbox.id)
        await handle.remove_sandbox(sandbox.id)
    for unit in snapshot.units:
        if all(unit.sandbox_id != sandbox.id for sandbox in snapshot.sandboxes):
            await handle.stop_unit(unit.id, 0)
            await handle.remove_unit(unit.id)
    left = await handle.look(stone.uid)
    if left.sandboxes or left.units:
        raise Conflict(f"runtime {handle.name} still shows what it reported as removed")
