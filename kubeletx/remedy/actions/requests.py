"""Requests of methods to the API server, and the outcomes that methods share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from kubeletx.api import Clock, KubeletxError, TimedOut, Unavailable
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds

from ..model import FenceProof, MethodResult, RemedyOutcome, RemedyTask

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

T = TypeVar("T")


async def answered(client: KubeClient, clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until the API server answers it. The caller sets the deadline."""
    backoff = server_backoff()
    while True:
        try:
            return await call()
        except (Unavailable, TimedOut) as error:
            await client.pause(backoff.next(clock.monotonic(), at_least=least_seconds(error)))


def done(task: RemedyTask, message: str) -> RemedyOutcome:
    """Return the outcome of a method that succeeded, with its proof."""
    proofs = () if task.method.proof is FenceProof.NONE else (task.method.proof,)
    return RemedyOutcome(result=MethodResult.DONE, proofs=proofs, message=message)


def not_done(acts: bool, error: KubeletxError) -> RemedyOutcome:
    """Return the outcome after an error. `acts`: the method may have acted."""
    return RemedyOutcome(result=MethodResult.UNKNOWN if acts else MethodResult.FAILED, message=str(error))
