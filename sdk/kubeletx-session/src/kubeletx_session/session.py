"""`Session`: one session of this instance, as the application sees it. Its methods may be called from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

MOST_LEFT = 100
"""Number of clients that left since the last report, of which the oldest is then forgotten."""


class SessionState(Enum):
    """State of a session in this instance."""

    OPENING = "opening"
    """on_open runs."""
    OPEN = "open"
    CLOSING = "closing"
    """on_close runs, or on_open still does."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a session: its identifier, and when it joined and left (None: it is there). Times are aware, UTC."""

    id: str
    joined_at: datetime
    left_at: datetime | None = None


class Session:
    """One session. The client of the SDK makes it; `data` are the bytes that were given when it was opened.

    Two sessions with the same `id` may follow each other: keep state of the application by this object, or drop it in
    on_close, which has ended before on_open of the next one is called.
    """

    def __init__(
        self,
        id: str,
        data: bytes,
        *,
        message_id: str,
        changed: Callable[[Session], None],
        ask_close: Callable[[Session, float], None],
    ) -> None:
        """`message_id`: identifier of the message that opened it. `changed`, `ask_close`: called in any thread."""
        self.id = id
        self.data = data
        self.message_id = message_id
        self.opened_at = datetime.now(UTC)
        self._state = SessionState.OPENING
        self._changed = changed
        self._ask_close = ask_close
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._left: list[Client] = []

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def clients(self) -> tuple[Client, ...]:
        """Clients that are there, in the order in which they joined."""
        with self._lock:
            return tuple(self._clients.values())

    def join(self, client_id: str) -> None:
        """Count a client. The same client again changes nothing; a closed session has no clients."""
        with self._lock:
            if client_id in self._clients or self._state is SessionState.CLOSED:
                return
            self._clients[client_id] = Client(client_id, datetime.now(UTC))
        self._changed(self)

    def leave(self, client_id: str) -> None:
        """Stop to count a client. An unknown one changes nothing."""
        with self._lock:
            client = self._clients.pop(client_id, None)
            if client is None:
                return
            self._add_left(client)
        self._changed(self)

    @contextmanager
    def client(self, client_id: str) -> Iterator[None]:
        """Count a client while the context lasts."""
        self.join(client_id)
        try:
            yield
        finally:
            self.leave(client_id)

    def close(self, grace_seconds: float = 60.0) -> None:
        """Close the session from the application's side: on_close runs, then the end is reported. Returns at once."""
        self._ask_close(self, grace_seconds)

    def become(self, state: SessionState) -> None:
        """Change the state; only for the client of the SDK. A closed session stays closed, and its clients leave."""
        with self._lock:
            if self._state is SessionState.CLOSED:
                return
            self._state = state
            if state is SessionState.CLOSED:
                for client in self._clients.values():
                    self._add_left(client)
                self._clients.clear()
        self._changed(self)

    def to_report(self) -> tuple[SessionState, tuple[Client, ...]]:
        """Return what the next report contains: the state, clients that are there, and those that left since."""
        with self._lock:
            return self._state, (*self._clients.values(), *self._left)

    def reported(self, clients: tuple[Client, ...]) -> None:
        """Forget the clients that left and have been reported."""
        with self._lock:
            self._left = [client for client in self._left if client not in clients]

    def _add_left(self, client: Client) -> None:
        self._left.append(Client(client.id, client.joined_at, datetime.now(UTC)))
        del self._left[:-MOST_LEFT]
