"""`supervise`: runs a background task of the agent and restarts it after a failure, so that it does not end the agent.

Examples are pod sources, clean-up, image garbage collection and log rotation.
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
    """Call `run`; if it raises an error, wait `RESTART_SECONDS` and call it again. Return when `run` returns.

    `name`: the task's name in the log. `on_failure`: called with each error; None: errors are only logged.
    """
    while True:
        try:
            await run()
        except asyncio.CancelledError:
            raise
        except KubeletxError as error:
            log.error("Task failed; restarting it", task=name, err=str(error))
            failure: Exception = error
        except Exception as error:
            log.exception("Task failed with a bug; restarting it", task=name)
            failure = error
        else:
            return
        if on_failure is not None:
            on_failure(failure)
        await clock.sleep(RESTART_SECONDS)
