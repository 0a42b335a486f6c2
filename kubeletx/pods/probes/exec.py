"""Exec probes: run a command in the container or machine; exit code 0 passes (P6 in docs/kubelet-parity.md).

If the runtime does not answer, a probe neither passes nor fails. A timeout of the command is a failure of the container
only if the runtime still answers a health check; otherwise the runtime itself hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kubeletx.api import ExecResult, KubeletxError, TimedOut, Unavailable, UnitId
from kubeletx.kube.types.core import ExecAction

from .outcome import ProbeOutcome, ProbeResult

OUTPUT_LIMIT_BYTES = 10 * 1024
MARGIN_SECONDS = 2.0
"""Time after a command's timeout in which its result may still arrive."""


ExecSync = Callable[[UnitId, Sequence[str], float], Awaitable[ExecResult]]
"""Runs a command in a unit until it exits, or for the given seconds. Raises only KubeletxError and CancelledError."""


class ExecFinder(Protocol):
    """Interface that finds the exec capability of one pod's runtime; implemented by `RuntimeExecFinder`."""

    def find(self) -> ExecSync | None:
        """Return the function that runs a command on the pod's runtime.

        None if the pod has no runtime yet, or if its runtime does not support exec or does not answer.
        """
        ...

    async def answers(self) -> bool:
        """Return True if the runtime answers a health check now. Called after a timeout; has a short deadline."""
        ...


async def ask_exec(
    action: ExecAction, unit_id: UnitId, finder: ExecFinder, timeout_seconds: float
) -> ProbeResult:
    """Run the probe's command once; return a result for its exit code or for the error of the call."""
    exec_sync = finder.find()
    if exec_sync is None:
        return ProbeResult(ProbeOutcome.SUSPENDED, "the runtime cannot run commands now")
    try:
        async with asyncio.timeout(timeout_seconds + MARGIN_SECONDS):
            result = await exec_sync(unit_id, action.command, timeout_seconds)
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
