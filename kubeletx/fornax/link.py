"""`Link`: the connection to one core: a stream of its messages, and one unary call for each message to it.

    run ─► connect ─► getMessage: stream ─► received (the node actor's mailbox)      any failure: close the connection,
                  └─► putMessage: one call after the other, from the `Outbox`        wait (back-off with jitter), connect

Order: a core handles calls in parallel, so each call is made after the answer to the one before. Every new stream begins
with a full state, which repairs whatever the core has missed.

Silence: the answer to a call proves that the core is there. If nothing was sent for `probe_seconds`, an empty message
of type UNSPECIFIED is sent, which a core answers and ignores. Pings of HTTP/2 are not used: servers in Go close the
connection of a client that sends them more often than every five minutes. A dead core is found after `probe_seconds`
plus `put_seconds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, Unavailable
from kubeletx.api.backoff import Backoff
from kubeletx.api.waiting import first_of, sleep_or, within

from . import wire
from .changes import Kind, Outbox, Step
from .cores import Core
from .stubs import fornaxcore_pb2 as pb
from .views import LinkStatus

log = structlog.get_logger(__name__)

Code = grpc.StatusCode
BROKEN = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED})
"""Codes of a call after which the connection is closed. With any other code the core itself has answered."""
BYTES_PER_SECOND = 4 << 20
"""Large messages get this much more time."""
MAX_LOGGED = 100
"""Different refusals that one link logs."""
OPTIONS: tuple[tuple[str, int], ...] = (
    *wire.CHANNEL_OPTIONS,
    # Each connection has its own socket, so that a dead one is not used again.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of TLS to the cores, read at each connection. `certificate` and `key`: None: the node shows none."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises Unavailable if one cannot be read."""
        try:
            authority, certificate, key = (
                path.read_bytes() if path is not None else None
                for path in (self.authority, self.certificate, self.key)
            )
        except OSError as error:
            problem = f"TLS file {error.filename} cannot be read: {error.strerror}"
            raise Unavailable(
                f"{problem}; make it readable, it is read again at the next connection"
            ) from error
        return grpc.ssl_channel_credentials(authority, key, certificate)


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a connection, in seconds.

    `greeting_seconds`: how long to wait for the first message of a core before the first one is sent.
    `settled_seconds`: after a connection of this length, the back-off begins again.
    """

    tls: TlsFiles | None = None
    connect_seconds: float = 5.0
    greeting_seconds: float = 1.0
    put_seconds: float = 8.0
    probe_seconds: float = 8.0
    register_seconds: float = 5.0
    settled_seconds: float = 10.0
    retry_seconds: float = 0.5
    max_retry_seconds: float = 15.0


class Link:
    """The connection to one core. `run` is its task. `outbox`: what is sent to the core."""

    def __init__(
        self,
        core: Core,
        identity: pb.NodeIdentifier,
        *,
        build: Callable[[Step], Awaitable[tuple[bytes, int]]],
        received: Callable[[Link, pb.FornaxCoreMessage], Awaitable[None]],
        progressed: Callable[[], None],
        settings: LinkSettings,
        clock: Clock,
    ) -> None:
        """`build`: returns the serialised message of a step other than CHANGE, and its revision; empty: nothing to send.

        `received`: gets each valid message; the next one is read when it returns. `progressed`: called after each
        answer of the core, and when the connection is lost.
        """
        self.outbox = Outbox(register_seconds=settings.register_seconds)
        self.core = core
        self._status = LinkStatus(address=core.address, since=clock.now())
        self._identity = identity
        self._build = build
        self._received = received
        self._progressed = progressed
        self._settings = settings
        self._clock = clock
        self._answered_at = 0.0
        self._logged: set[str] = set()

    # --- for the node actor ---

    @property
    def is_connected(self) -> bool:
        return self._status.connected

    def status(self) -> LinkStatus:
        """Return the present status; the next call changes the same object."""
        status, outbox = self._status, self.outbox
        status.identifier, status.role = self.core.identifier, self.core.role.value
        status.registered, status.acknowledged = outbox.is_registered, outbox.acknowledged
        status.queue, status.overflows = len(outbox), outbox.overflows
        return status

    def refuse(self, problem: str) -> None:
        """Count a message of the core that is not carried out, and log each reason once."""
        self._status.refused += 1
        self._log_once("Refused a message of a FornaxCore", problem)

    # --- the task ---

    async def run(self) -> None:
        """Keep the core connected until cancelled."""
        settings = self._settings
        backoff = Backoff(settings.retry_seconds, settings.max_retry_seconds, jitter=0.5)
        while True:
            began = self._clock.monotonic()
            try:
                await self._connect()
            except KubeletxError as error:
                self._lost(str(error))
            except grpc.aio.AioRpcError as error:
                self._lost(_text(error))
            except Exception as error:
                log.exception("Link to a FornaxCore failed with a bug", core=self.core.address)
                self._lost(f"internal error: {error!r}")
            finally:
                self._set_connected(False)
            if self._clock.monotonic() - began > settings.settled_seconds:
                backoff.reset()
            await self._clock.sleep(backoff.next())

    async def _connect(self) -> None:
        """Connect and work until the connection fails. Raises AioRpcError, or an error of `kubeletx.api`."""
        address, tls = self.core.address, self._settings.tls
        if tls is None:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            channel = grpc.aio.secure_channel(address, tls.credentials(), options=OPTIONS)
        greeted = asyncio.Event()
        stream = channel.unary_stream(wire.GET_MESSAGE, None, None)(self._identity.SerializeToString())
        ended = None
        try:
            reading = self._read(stream, greeted)
            for ended in await first_of("fornax-link", reading, self._send(channel, greeted)):
                if ended is not None:
                    ended.result()
        finally:
            await channel.close(grace=None)
            # The socket is closed when the last call is freed. The error, its traceback, this frame and the ended task
            # are a cycle: the stream would remain until garbage collection, and the core refuses a second one.
            del stream, reading, ended

    async def _read(self, stream: AsyncIterable[bytes], greeted: asyncio.Event) -> None:
        async for data in stream:
            greeted.set()
            self._status.received += 1
            try:
                message = wire.parse(data, self._identity.identifier)
            except wire.InvalidMessage as error:
                self.refuse(str(error))
                continue
            await self._received(self, message)
        raise Unavailable(f"core {self.core.address} ended the stream of messages; the agent connects again")

    async def _send(self, channel: grpc.aio.Channel, greeted: asyncio.Event) -> None:
        settings = self._settings
        async with within(
            settings.connect_seconds, f"core {self.core.address} did not accept the connection"
        ):
            await channel.channel_ready()
        # A core asks for a full state at once; without this wait it would get two.
        await sleep_or(self._clock, settings.greeting_seconds, greeted)
        self.outbox.opened()
        self._answered_at = self._clock.monotonic()
        put = channel.unary_unary(wire.PUT_MESSAGE, None, None)
        retry = Backoff(settings.retry_seconds, 60.0, jitter=0.5)
        while True:
            step = self._next()
            if step is None:
                await self._idle()
            elif await self._put(put, step):
                retry.reset()
            else:
                await self._clock.sleep(retry.next())

    def _next(self) -> Step | None:
        now = self._clock.monotonic()
        step = self.outbox.next(now)
        if step is None and now - self._answered_at >= self._settings.probe_seconds:
            return Step(kind=Kind.PROBE)
        return step

    async def _idle(self) -> None:
        """Wait for a message to send, or until the next registration or probe is due."""
        self.outbox.news.clear()
        due = min(self.outbox.due_at(), self._answered_at + self._settings.probe_seconds)
        cancel = self._clock.call_at(due, self.outbox.news.set)
        try:
            await self.outbox.news.wait()
        finally:
            cancel()

    async def _put(self, put: Callable[..., Awaitable[bytes]], step: Step) -> bool:
        """Send one message; returns False if the core refused it. Raises AioRpcError if the connection is broken."""
        message, revision = await self._message(step)
        if not message:
            self.outbox.done(step, step.revision)
            return True
        if len(message) > wire.MAX_MESSAGE_BYTES:
            self._failed(
                step, f"{step.kind.value} has {len(message)} bytes, the limit is {wire.MAX_MESSAGE_BYTES}"
            )
            return False
        timeout = self._settings.put_seconds + len(message) / BYTES_PER_SECOND
        try:
            await put(message, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in BROKEN:
                self._status.failures += 1
                self.outbox.request_full()
                raise
            if step.kind is not Kind.PROBE:
                self._failed(step, _text(error))
                return False
        except BaseException:
            self.outbox.request_full()
            raise
        sent, kind = self._status.sent, step.kind.value
        sent[kind] = sent.get(kind, 0) + 1
        self._answered_at = self._clock.monotonic()
        if step.kind is not Kind.PROBE:
            self.outbox.done(step, revision)
            self._status.problem = ""
        if step.kind in (Kind.STATE, Kind.READY):
            self._status.full_at = self._clock.now()
        self._set_connected(True)
        self._progressed()
        return True

    async def _message(self, step: Step) -> tuple[bytes, int]:
        match step.kind:
            case Kind.CHANGE:
                return step.message, step.revision
            case Kind.PROBE:
                return pb.FornaxCoreMessage(nodeIdentifier=self._identity).SerializeToString(), 0
        return await self._build(step)

    def _failed(self, step: Step, problem: str) -> None:
        self._status.failures += 1
        self.outbox.refused(step)
        self._answered_at = self._clock.monotonic()
        self._status.problem = f"{step.kind.value}: {problem}"
        self._log_once("Failed to send to a FornaxCore", f"{step.kind.value}: {problem}")

    def _set_connected(self, connected: bool) -> None:
        if connected is self.is_connected:
            return
        self._status.connected, self._status.since = connected, self._clock.now()
        self._progressed()
        if connected:
            self._status.problem = ""
            self._status.connects += 1
            log.info("Connected to a FornaxCore", core=self.core.address, role=self.core.role.value)

    def _lost(self, problem: str) -> None:
        """Log the loss of a connection, or why there is none, once until the next connection."""
        if self.is_connected or self._status.problem != problem:
            log.warning("No connection to a FornaxCore", core=self.core.address, err=problem)
        self._status.problem = problem

    def _log_once(self, text: str, problem: str) -> None:
        if problem not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(problem)
            log.warning(text, core=self.core.address, err=problem)


def _text(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details() or 'no details'}"
