"""An HTTP server whose sessions are counters, one for each visitor; it needs the SDK and nothing else.

    GET /NAME    counts up the session NAME of the pod's namespace, and answers with the number
    GET /        answers with the names of open sessions

The data of a session is the number at which it begins. A visitor is a client of the session while its connection is open.
"""

from __future__ import annotations

import os
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kubeletx_session import Session, SessionClient, Settings


class Counters:
    """The application: a number for each open session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Session, int]] = {}

    def on_open(self, session: Session) -> None:
        """Begin to count. Data that is no number raises ValueError, which refuses the session."""
        with self._lock:
            self._open[session.id.partition("/")[2]] = (session, int(session.data or b"0"))

    def on_close(self, session: Session, grace_seconds: float) -> None:
        with self._lock:
            self._open.pop(session.id.partition("/")[2], None)

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._open)

    def count(self, name: str) -> tuple[Session, int] | None:
        """Count up, and return the session with its number; None if no session has this name."""
        with self._lock:
            if name not in self._open:
                return None
            session, number = self._open[name]
            self._open[name] = (session, number + 1)
            return session, number + 1


class Visit(BaseHTTPRequestHandler):
    """One connection of a visitor."""

    protocol_version = "HTTP/1.1"
    counters: Counters
    joined: Session | None = None

    def do_GET(self) -> None:
        """Answer one request, see the head of this file."""
        counter = self.counters.count(self.path.strip("/"))
        if self.path == "/":
            self._answer(HTTPStatus.OK, "\n".join(self.counters.names()))
        elif counter is None:
            self._answer(HTTPStatus.NOT_FOUND, "no such session")
        else:
            session, number = counter
            if self.joined is not session:
                self.finish_visit()
                session.join(self._visitor)
                self.joined = session
            self._answer(HTTPStatus.OK, str(number))

    def finish(self) -> None:
        """Leave the session when the connection ends."""
        self.finish_visit()
        super().finish()

    def finish_visit(self) -> None:
        if self.joined is not None:
            self.joined.leave(self._visitor)
            self.joined = None

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: sessions and visitors are shown by 'kubeletx session list'."""

    @property
    def _visitor(self) -> str:
        return "{}:{}".format(*self.client_address)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    counters = Counters()
    handler = type("Visit", (Visit,), {"counters": counters})
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), handler)
    server.daemon_threads = True
    print(f"listening on port {server.server_address[1]}", flush=True)  # noqa: T201 - the log of the pod
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    settings = Settings.from_environment(heartbeat_seconds=float(os.environ.get("HEARTBEAT", "10")))
    SessionClient(counters.on_open, counters.on_close, settings=settings).run()  # until SIGTERM
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
