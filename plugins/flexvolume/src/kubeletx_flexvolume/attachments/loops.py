"""Bodies of the background tasks of one node, and its start. Each task runs until it is cancelled.

A failure of the store is logged once and tried again; other exceptions are bugs and end the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kubeletx.api import Clock, InvalidConfig, KubeletxError

from .deadlines import wait_for_event, within
from .editing import Draw
from .entry_check import EntryCheck
from .list_worker import ListWorker, OwnNode
from .nodes import ANNOUNCE_SECONDS, RecordedNodes
from .returned import ReturnedEntries

log = structlog.get_logger(__name__)

LIST_SECONDS: Final = 600.0
CHECK_SECONDS: Final = 60.0
RETURN_SECONDS: Final = 60.0
"""Longest pause before the look for old entries after a start; it is random, since many nodes may start together."""
START_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0


async def start_node(
    own: OwnNode, nodes: RecordedNodes | None, worker: ListWorker, check: EntryCheck
) -> None:
    """Write the node's record, and work off its garbage list, before the agent serves.

    If the store does not answer within `START_SECONDS`, the tasks try again later. Raises InvalidConfig.
    """
    try:
        async with within(START_SECONDS, "the garbage list was not worked off"):
            if nodes is not None:
                await nodes.announce(own.name, own.boot_id)
            await worker.work_off()
            await check.check()
    except InvalidConfig:
        raise
    except KubeletxError as error:
        log.warning("Failed to reach the records; no volume is attached before they answer", err=str(error))


async def announce(own: OwnNode, nodes: RecordedNodes, clock: Clock) -> None:
    """Refresh the node's own record."""

    async def once() -> float:
        await nodes.announce(own.name, own.boot_id)
        return ANNOUNCE_SECONDS

    await _repeat("node record", once, clock, ANNOUNCE_SECONDS)


async def work_off(worker: ListWorker, clock: Clock, draw: Draw) -> None:
    """Work off the garbage list every ten minutes."""

    async def once() -> float:
        await worker.work_off()
        return LIST_SECONDS * (0.9 + 0.2 * draw())

    await _repeat("garbage list", once, clock, 0.0)


async def check_entries(check: EntryCheck, lost: asyncio.Event, clock: Clock, draw: Draw) -> None:
    """Check the entries of attached volumes each minute, and at once if `lost` is set."""
    while True:
        await wait_for_event(lost, clock, CHECK_SECONDS * (0.9 + 0.2 * draw()), "entry check")
        lost.clear()
        try:
            await check.check()
        except KubeletxError as error:
            log.warning("Failed to check the entries of volumes", err=str(error))


async def clean_returned(returned: ReturnedEntries, clock: Clock, draw: Draw) -> None:
    """Remove old entries of this node once; this task ends by itself."""
    await clock.sleep(RETURN_SECONDS * draw())
    while True:
        try:
            await returned.clean()
        except KubeletxError as error:
            log.warning("Failed to look for old entries of this node", err=str(error))
            await clock.sleep(LIST_SECONDS)
        else:
            return


async def _repeat(what: str, once: Callable[[], Awaitable[float]], clock: Clock, first: float) -> None:
    """Call `once` repeatedly. It returns the seconds before the next call; after a failure they are `RETRY_SECONDS`."""
    await clock.sleep(first)
    is_failed = False
    while True:
        try:
            seconds = await once()
            is_failed = False
        except KubeletxError as error:
            if not is_failed:
                log.warning("Failed a task of the attachments", task=what, err=str(error))
            seconds, is_failed = RETRY_SECONDS, True
        await clock.sleep(seconds)
