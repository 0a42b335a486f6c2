"""`SessionActor`: one task and one mailbox for each session that has not ended.

The room puts inputs into the mailbox; the task takes them in order, changes the session by the table of `model`, sends
messages to the instance, and watches the times: openTimeoutSeconds, closeGracePeriodSeconds, heartbeats.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeletx.api import Clock

from .model import CLOSING, OPEN, OPENING, Cause, Client, Reason, Session, SessionLimits, SessionState
from .stubs import session_service_pb2 as pb
from .wire import StateReport, close_message, open_message, ping_message


class Attached(msgspec.Struct, frozen=True):
    """Input: the instance has a new connection."""


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """Input: close the session. `grace_seconds`: time for the instance; None: the session's own.

    `until`: monotonic time at which the session counts as ended without an answer; None: the grace period and a margin
    from now. `reason`: a value of `Reason`.
    """

    grace_seconds: float | None = None
    until: float | None = None
    reason: str = Reason.CLOSED


class Ended(msgspec.Struct, frozen=True):
    """Input: the instance has ended. `message`: for people. `is_restart`: its containers start again."""

    message: str
    is_restart: bool = False


Input = Attached | Close | Ended | StateReport


class SessionActor:
    """Runs one session. `session` is its newest value."""

    def __init__(
        self,
        session: Session,
        *,
        is_null: bool,
        clock: Clock,
        limits: SessionLimits,
        send: Callable[[pb.SessionMessage], bool],
        publish: Callable[[Session], None],
    ) -> None:
        """`is_null`: the pod has no sessions in its containers, so open and close need no answer.

        `send`: queues a message to the instance; returns False if it is not connected. `publish`: called with each
        changed session. For a session that was loaded from the store, all times begin now.
        """
        self.session = session
        self.ended = asyncio.Event()
        self._is_null = is_null
        self._clock = clock
        self._limits = limits
        self._send = send
        self._publish = publish
        self._mailbox: deque[Input] = deque([Attached()])
        self._news = asyncio.Event()
        now = clock.monotonic()
        self._open_by = now + session.open_timeout_seconds
        self._close_by = now + session.close_grace_seconds + limits.close_margin_seconds
        self._heard_at = self._pinged_at = now

    def put(self, news: Input) -> None:
        """Put an input into the mailbox. Of equal inputs in a row only the last is kept, which bounds the mailbox."""
        if (
            isinstance(news, StateReport | Attached)
            and self._mailbox
            and type(self._mailbox[-1]) is type(news)
        ):
            self._mailbox.pop()
        self._mailbox.append(news)
        self._news.set()

    async def run(self) -> None:
        """Run the session until it has ended."""
        while not self.session.is_over:
            self._news.clear()
            while self._mailbox and not self.session.is_over:
                self._take(self._mailbox.popleft())
            due = self._check_times()
            if not self.session.is_over:
                await self._wait(due)

    def fail(self) -> None:
        """End the session after a bug in it."""
        if not self.session.is_over:
            self._change(
                Cause.INSTANCE_ENDED, reason="Internal", message="a bug ended the session, see the log"
            )

    async def _wait(self, due: float | None) -> None:
        cancel = self._clock.call_at(due, self._news.set) if due is not None else None
        try:
            await self._news.wait()
        finally:
            if cancel is not None:
                cancel()

    # --- inputs -------------------------------------------------------------------------------------

    def _take(self, news: Input) -> None:
        match news:
            case Attached():
                self._open_null() if self._is_null else self._send_again()
            case StateReport():
                self._hear(news)
            case Close():
                self._close(news)
            case Ended() if not (news.is_restart and self.session.state in OPENING):
                self._change(
                    Cause.INSTANCE_ENDED,
                    reason=self.session.reason or Reason.INSTANCE_ENDED,
                    message=news.message,
                )

    def _open_null(self) -> None:
        if self.session.state in OPENING:
            self._change(Cause.OPENED)
        elif self.session.state in CLOSING:  # the agent ended between the two changes
            self._change(Cause.CLOSED)

    def _send_again(self) -> None:
        """Send what a new connection must know: earlier messages may be lost."""
        session = self.session
        match session.state:
            case SessionState.STARTING:
                if self._send(open_message(session)):
                    self._change(Cause.SENT)
            case SessionState.READINESS_CHECKING:
                self._send(open_message(session))
            case SessionState.READY | SessionState.LIVE:
                self._ping()
            case SessionState.EVACUATING | SessionState.TERMINATING:
                left = self._close_by - self._limits.close_margin_seconds - self._clock.monotonic()
                self._send(close_message(session, min(left, session.close_grace_seconds)))

    def _hear(self, report: StateReport) -> None:
        self._heard_at = self._clock.monotonic()
        self.session = replace(self.session, heartbeat_at=self._clock.now())
        if self.session.is_silent:
            self._set(is_silent=False)
        if report.state == pb.STATE_CLOSED:
            self._closed()
            return
        if report.state == pb.STATE_OPEN and self.session.can(Cause.OPENED):
            self._change(Cause.OPENED)
        if self.session.state not in OPENING:
            self._set_clients(report.clients)
        if report.state == pb.STATE_CLOSING and self.session.can(Cause.CLOSING):
            grace = self.session.close_grace_seconds
            self._close_by = self._clock.monotonic() + grace + self._limits.close_margin_seconds
            reason = Reason.REFUSED if self.session.state in OPENING else Reason.CLOSED_BY_INSTANCE
            self._change(Cause.CLOSING, reason=reason)

    def _closed(self) -> None:
        if not self.session.can(Cause.CLOSED):
            return  # a late heartbeat about an earlier session of this name: OPEN_SESSION is not sent yet
        reason = self.session.reason
        if self.session.state in OPENING:
            reason = Reason.REFUSED
        elif self.session.state in OPEN:
            reason = Reason.CLOSED_BY_INSTANCE
        self._change(Cause.CLOSED, reason=reason)

    def _set_clients(self, clients: tuple[Client, ...]) -> None:
        if clients == self.session.clients:
            return
        cause = Cause.JOINED if clients else Cause.LEFT
        if self.session.can(cause):
            self._change(cause, clients=clients)
        else:
            self._set(clients=clients)

    def _close(self, asked: Close) -> None:
        grace = self.session.close_grace_seconds if asked.grace_seconds is None else asked.grace_seconds
        until = asked.until
        if until is None:
            until = self._clock.monotonic() + grace + self._limits.close_margin_seconds
        state = self.session.state
        if state in CLOSING:
            if until < self._close_by:
                self._close_by = until
                self._send(close_message(self.session, grace))
            return
        self._close_by = until
        if state is not SessionState.STARTING:
            self._send(close_message(self.session, grace))
        self._change(Cause.CLOSE, reason=asked.reason)
        if self._is_null and not self.session.is_over:
            self._change(Cause.CLOSED)

    # --- times --------------------------------------------------------------------------------------

    def _check_times(self) -> float | None:
        """Do what is due, and return the monotonic time of the next check; None: only an input changes something."""
        now, state = self._clock.monotonic(), self.session.state
        if state in OPENING:
            if now >= self._open_by:
                self._open_timed_out()
            return self._open_by
        if state in CLOSING:
            if now >= self._close_by:
                self._close_timed_out()
            return self._close_by
        if state not in OPEN or self._is_null:
            return None
        silent_at = self._heard_at + self._limits.heartbeat_seconds
        if now >= silent_at and not self.session.is_silent:
            self._set(is_silent=True)
        ping_at = max(self._heard_at, self._pinged_at) + self._limits.ping_seconds
        if now >= ping_at:
            self._ping()
            ping_at = now + self._limits.ping_seconds
        return ping_at if self.session.is_silent else min(ping_at, silent_at)

    def _ping(self) -> None:
        self._pinged_at = self._clock.monotonic()
        self._send(ping_message(self.session))

    def _open_timed_out(self) -> None:
        session = self.session
        if session.state is SessionState.READINESS_CHECKING:
            self._send(close_message(session, 0))
            message = f"the instance did not answer OPEN_SESSION within {session.open_timeout_seconds:g} s"
        else:
            message = f"the instance did not connect within {session.open_timeout_seconds:g} s"
        self._change(Cause.OPEN_TIMEOUT, reason=Reason.OPEN_TIMEOUT, message=message)

    def _close_timed_out(self) -> None:
        is_evacuated = self.session.reason == Reason.EVACUATED
        reason = Reason.EVACUATED if is_evacuated else Reason.CLOSE_TIMEOUT
        self._change(Cause.GRACE_OVER, reason=reason, message="the instance did not report it closed in time")

    # --- changes ------------------------------------------------------------------------------------

    def _change(self, cause: Cause, **fields: Any) -> None:
        session = self.session.after(cause, self._clock.now())
        if session.is_over:
            fields.pop("clients", None)
        self.session = replace(session, **fields)
        if self.session.is_over:
            self.ended.set()
        self._publish(self.session)

    def _set(self, **fields: Any) -> None:
        self.session = replace(self.session, **fields)
        self._publish(self.session)
