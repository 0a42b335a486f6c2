"""Exec probes: a command inside the unit; exit code 0 passes (P6).

A runtime that does not answer makes a probe neither pass nor fail. A time-out is the container's failure only
if the runtime itself still answers: otherwise the whole runtime hangs, and no container is to blame.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kubeletx.api import KubeletxError, SupportsExec, TimedOut, Unavailable, UnitId
from kubeletx.kube.types.core import ExecAction

from .outcome import ProbeOutcome, ProbeResult

OUTPUT_LIMIT_BYTES = 10 * 1024
MARGIN_SECONDS = 2.0
"""Time after a command's timeout in which its result may still arrive."""


class ExecFinder(Protocol):
    """Runs commands in the containers of one pod; implemented by `RuntimeExecFinder`."""

    def find(self) -> SupportsExec | None:
        """The runtime's exec capability; None if the pod is not bound, or the runtime lacks exec or does not answer."""
        ...

    async def answers(self) -> bool:
        """Return True if the runtime answers now. Called only after a timeout; has its own short deadline."""
        ...


async def ask_exec(
    action: ExecAction, unit_id: UnitId, finder: ExecFinder, timeout_seconds: float
) -> ProbeResult:
    """Run the probe's command once; convert its exit code, or the error, to a result."""
    exec_ = finder.find()
    if exec_ is None:
        return ProbeResult(ProbeOutcome.SUSPENDED, "the runtime cannot run commands now")
    try:
        async with asyncio.timeout(timeout_seconds + MARGIN_SECONDS):
            result = await exec_.exec_sync(unit_id, action.command, timeout_seconds)
    except (TimedOut, TimeoutError):
        if not await finder.answers():
            return ProbeResult(ProbeOutcome.SUSPENDED, "the runtime does not answer")
        return ProbeResult(ProbeOutcome.FAILURE, f"command timed out after {timeout_seconds:g}s")
    except Unavailable as error:
        return ProbeResult(ProbeOutcome.SUSPENDED, error.message)
    except KubeletxError as error:
        return ProbeResult(ProbeOutcome.UNKNOWN, error.message)
    output = (result.stdout + result.stderr)[:OUTPUT_LIMIT_BYTES].decode(errors="replace")
    if result.exit_code == 0:
        return ProbeResult(ProbeOutcome.SUCCESS, output)
    return ProbeResult(ProbeOutcome.FAILURE, output or f"command exited with code {result.exit_code}")
