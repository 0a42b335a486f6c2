"""`LeaseLock`: a lock that at most one of many candidates holds, by means of a Lease object in the cluster.

    free ──acquire──► held ──renewed──► held ──work ends──► released
                        └──no renewal for renew_seconds──► lost ──acquire──► ...

A candidate takes the lock when the Lease has no holder, or when the Lease has not changed for the holder's lease
duration. The candidate measures this time on its own monotonic clock, from the answer that first showed the present
state of the Lease. Writes carry the resourceVersion that was read, so if two candidates write, one gets Conflict.

The holder counts from the moment before it sent its last successful renewal. It gives up `renew_seconds` later. That is
less than the lease duration, so the holder has given up before another candidate can take the lock. A renewal whose
answer is missing counts as failed, although it may have reached the server: other candidates then wait longer, never
shorter.

The holder also gives up when this time is over on the wall clock. Linux's monotonic clock stops while the machine is
suspended; the wall clock does not. A wall clock that is set back changes nothing.

Work that runs under the lock is cancelled when the lock is lost, and then has duration_seconds - renew_seconds to end.
It must check `is_held` before each step that must not happen twice: after a suspension of the machine, it runs for a
moment before it is cancelled. Steps that end outside this process, such as a power switch, need a fence of their own.
Clocks must run at the same rate; they need not show the same time. Deleting a Lease that is held frees the lock at
once.

The node's heartbeat is another use of Leases: apiserver/lease.py. Source: client-go, tools/leaderelection.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import (
    AlreadyExists,
    Clock,
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    TimedOut,
    first_of,
)

from ..types.lease import Lease, LeaseSpec, micro_time, micro_time_after
from ..types.meta import ObjectMeta
from .errors import least_seconds
from .resources import LEASES

log = structlog.get_logger(__name__)

T = TypeVar("T")

_JITTER = 1.2
_RELEASED_SECONDS = 1
_RELEASE_DEADLINE_SECONDS = 5.0


class LeaseClient(Protocol):
    """Methods of `KubeClient` that a `LeaseLock` uses."""

    async def get(self, path: str, type_: type[T]) -> T:
        """Return the object at `path`. Raises NotFound."""
        ...

    async def create(self, path: str, value: Any, type_: type[T]) -> T:
        """Create the object and return it as stored. Raises AlreadyExists."""
        ...

    async def replace(self, path: str, value: Any, type_: type[T]) -> T:
        """Replace the object and return it as stored. Raises Conflict if it has another version than `value`."""
        ...


class LockLost(Conflict):
    """This candidate no longer holds the lock; the work that the lock protects must stop."""


class LockTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a lock, in seconds. The defaults are client-go's.

    `duration_seconds`: other candidates take the lock this long after the last renewal. `renew_seconds`: the
    holder gives up after this long without a renewal. `retry_seconds`: time between two attempts; a random
    part of up to a fifth is added. Raises InvalidConfig unless duration_seconds > renew_seconds >
    1.2 * retry_seconds > 0.
    """

    duration_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.duration_seconds > self.renew_seconds > self.retry_seconds * _JITTER > 0:
            return
        raise InvalidConfig(
            field="lock times",
            problem=f"duration {self.duration_seconds} s, renew {self.renew_seconds:g} s, retry {self.retry_seconds:g} s",
            fix="make the duration longer than the renewal, and the renewal more than 1.2 times the retry",
        )


class _Held(msgspec.Struct, frozen=True):
    until: float
    wall_until: datetime


def new_identity() -> str:
    """Make a name that no other process has, now or after a restart: host name, process id and a random part."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:12]}"


class LeaseLock:
    """One candidate for a lock. At most one candidate holds the lock at a time, by renewing a Lease.

    Most callers need only `run`, which calls `acquire`, `renew` and `release`. Call these three from one task.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        times: LockTimes | None = None,
        draw: random.Random | None = None,
    ) -> None:
        """`namespace`, `name`: namespace and name of the Lease.

        `identity`: this candidate's name, which no other candidate and no earlier run has; see `new_identity`.
        `draw`: source of randomness for the times between attempts.
        """
        self._client = client
        self._what = f"lease {namespace}/{name}"
        self._collection = LEASES.path(namespace)
        self._path = LEASES.path(namespace, name)
        self._meta = ObjectMeta(name=name, namespace=namespace)
        self._clock = clock
        self._times = times or LockTimes()
        self._random = draw or random.Random()
        self.identity = identity
        self._held: _Held | None = None
        self._lease: Lease | None = None
        """The Lease as this candidate last wrote it; None: read it before the next write."""
        self._seen: tuple[LeaseSpec, float] | None = None
        """The spec that was read last, and the monotonic time at which it was first seen."""
        self._problem = ""

    @property
    def is_held(self) -> bool:
        """True while this candidate holds the lock; then no other candidate does."""
        held = self._held
        return (
            held is not None and self._clock.monotonic() < held.until and self._clock.now() < held.wall_until
        )

    @property
    def holder(self) -> str:
        """Identity of the lock's holder when the Lease was last read; empty if there was none."""
        if self.is_held:
            return self.identity
        return (self._seen[0].holder_identity or "") if self._seen is not None else ""

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the lock, run `work` while it is held, release the lock, and return the result of `work`.

        Raises LockLost if the lock is lost; `work` is then cancelled and has ended before the error is
        raised.
        """
        await self.acquire()
        try:
            worker, keeper = await first_of(f"work under {self._what}", work(), self._keep())
            if worker is None and keeper is not None:
                keeper.result()
            assert worker is not None  # `_keep` ends with an error only
            result: T = worker.result()
            return result
        finally:
            await self.release()

    async def acquire(self) -> None:
        """Wait until this candidate holds the lock.

        Failures are retried without limit; only the first of several in a row is logged.
        """
        while True:
            wait = self._pause()
            try:
                if await self._in_time(self.try_acquire(), self._times.renew_seconds) and self.is_held:
                    return
                self._problem = ""
            except KubeletxError as error:
                if not self._problem:
                    log.warning("Cannot ask for the lock", lock=self._what, err=str(error))
                self._problem = str(error)
                wait = max(wait, least_seconds(error))
            await self._clock.sleep(wait)

    async def try_acquire(self) -> bool:
        """Take the lock if it is free or expired, and return True; return False if another candidate holds it.

        Raises the error of the API server or the connection. This candidate then does not hold the lock, even
        if the Lease names it.
        """
        sent = self._now()
        lease = await self._find()
        try:
            if lease is None:
                written = await self._client.create(
                    self._collection, self._taken(Lease(metadata=self._meta)), Lease
                )
            elif self._is_free(lease):
                sent = self._now()
                written = await self._client.replace(self._path, self._taken(lease), Lease)
            else:
                return False
        except (AlreadyExists, Conflict):  # another candidate was faster
            return False
        self._hold(written, sent)
        log.info("Acquired the lock", lock=self._what, identity=self.identity)
        return True

    async def renew(self) -> None:
        """Write one renewal to the Lease. Raises LockLost if the lock is lost.

        Other errors of the API server or the connection are raised too. This candidate then still holds the
        lock, until `renew_seconds` after the last successful renewal.
        """
        self._check()
        try:
            await self._replace()
        except (Conflict, NotFound) as error:
            if isinstance(error, LockLost):
                raise
            # Written or deleted meanwhile: by this candidate if an answer went missing, by a tool, or by another candidate.
            await self._replace()

    async def release(self) -> None:
        """Give the lock back, so that other candidates need not wait until it expires.

        Does nothing if the lock is not held. Errors are logged, not raised.
        """
        held, self._held = self._held, None
        if held is None:
            return
        seconds = min(_RELEASE_DEADLINE_SECONDS, self._times.renew_seconds)
        try:
            await self._in_time(self._free(), seconds)
            log.info("Released the lock", lock=self._what)
        except KubeletxError as error:
            log.warning("Failed to release the lock; it expires", lock=self._what, err=str(error))

    # --- inside ---

    async def _keep(self) -> None:
        """Renew the lock periodically until it is lost, then raise LockLost."""
        while True:
            await self._clock.sleep(min(self._pause(), self._left()))
            try:
                self._check()
                await self._in_time(self.renew(), min(self._left(), self._times.renew_seconds / 2))
                self._problem = ""
            except LockLost as error:
                log.warning("Lost the lock", lock=self._what, err=str(error))
                self._held = None
                raise
            except KubeletxError as error:
                if not self._problem:
                    log.warning("Cannot renew the lock", lock=self._what, err=str(error))
                self._problem = str(error)

    async def _replace(self) -> None:
        lease = self._lease or await self._find()
        if lease is None or lease.spec.holder_identity != self.identity:
            holder = lease.spec.holder_identity if lease is not None else ""
            raise LockLost(f"{self._what} has {f'holder {holder!r}' if holder else 'no holder'} now")
        self._lease = None
        sent = self._now()
        self._hold(await self._client.replace(self._path, self._taken(lease), Lease), sent)

    async def _free(self) -> None:
        for _ in range(2):
            lease = self._lease or await self._find()
            self._lease = None
            if lease is None or lease.spec.holder_identity != self.identity:
                return
            spec = replace(
                lease.spec,
                holder_identity="",
                lease_duration_seconds=_RELEASED_SECONDS,
                renew_time=micro_time_after(lease.spec.renew_time, self._clock.now()),
            )
            try:
                await self._client.replace(self._path, replace(lease, spec=spec), Lease)
            except Conflict:
                continue
            else:
                return

    async def _find(self) -> Lease | None:
        try:
            lease = await self._client.get(self._path, Lease)
        except NotFound:
            self._seen = None
            return None
        if self._seen is None or self._seen[0] != lease.spec:
            self._seen = lease.spec, self._clock.monotonic()  # after the answer: later than any renewal in it
        return lease

    def _is_free(self, lease: Lease) -> bool:
        spec = lease.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        since = self._seen[1] if self._seen is not None else self._clock.monotonic()
        seconds = spec.lease_duration_seconds or self._times.duration_seconds
        return self._clock.monotonic() - since >= seconds

    def _taken(self, lease: Lease) -> Lease:
        """Return the Lease with this candidate as its holder, renewed now."""
        before, now = lease.spec, self._clock.now()
        is_ours = before.holder_identity == self.identity
        transitions = before.lease_transitions or 0
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._times.duration_seconds,
            acquire_time=before.acquire_time if is_ours else micro_time(now),
            renew_time=micro_time_after(before.renew_time, now),
            lease_transitions=transitions if is_ours or not before.acquire_time else transitions + 1,
        )
        return replace(lease, spec=spec)

    def _hold(self, written: Lease, sent: tuple[float, datetime]) -> None:
        seconds = self._times.renew_seconds
        self._lease = written
        self._seen = written.spec, self._clock.monotonic()
        self._held = _Held(sent[0] + seconds, sent[1] + timedelta(seconds=seconds))

    def _check(self) -> None:
        if not self.is_held:
            raise LockLost(f"{self._what} was not renewed within {self._times.renew_seconds:g} s")

    def _left(self) -> float:
        return max(0.0, self._held.until - self._clock.monotonic()) if self._held is not None else 0.0

    def _now(self) -> tuple[float, datetime]:
        return self._clock.monotonic(), self._clock.now()

    def _pause(self) -> float:
        return self._times.retry_seconds * self._random.uniform(1.0, _JITTER)

    async def _in_time(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Return the result of `work`. Raises TimedOut after `seconds` of the injected clock.

        After TimedOut, the server may still carry out the request.
        """
        done, _ = await first_of(f"ask for {self._what}", work, self._clock.sleep(seconds))
        if done is None:
            raise TimedOut(f"{self._what}: no answer within {seconds:g} s")
        result: T = done.result()
        return result
