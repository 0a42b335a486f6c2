"""`supervise`: the root of each of the agent's own tasks, so that a failure in one ends neither it nor the agent.

Pod sources, clean-up, drop-ins, image collection, log keeping: each is useful by itself and none of them may take
running pods' agent down with it. A task that returns is done; one that raises is started again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from kubeletx.api import Clock, KubeletxError

log = structlog.get_logger(__name__)

RESTART_SECONDS = 10.0


async def supervise(
    name: str,
    run: Callable[[], Awaitable[None]],
    clock: Clock,
    on_failure: Callable[[Exception], None] | None = None,
) -> None:
    """Run to the end, again after each failure. `name` is for the log; `on_failure` gets each error."""
    while True:
        try:
            await run()
        except asyncio.CancelledError:
            raise
        except KubeletxError as error:
            log.error("Task failed and starts again", task=name, err=str(error))
            failure: Exception = error
        except Exception as error:
            log.exception("Task failed with a bug and starts again", task=name)
            failure = error
        else:
            return
        if on_failure is not None:
            on_failure(failure)
        await clock.sleep(RESTART_SECONDS)
