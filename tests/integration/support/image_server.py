"""A web server of files in a thread, for agents that download: it counts, and one path can hang."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class ImageServer:
    """Context manager. `files` by path with query; `hanging` paths are answered with nothing until the end."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.hanging: set[str] = set()
        self.requests: list[tuple[str, int]] = []
        """Path and status of every answer; 0: it hangs."""
        self._end = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """pytest shows what matters."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, name="files", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._http.server_port}"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.address}"

    def answers(self, path: str) -> list[int]:
        """Statuses of the answers for one path, in their order."""
        return [status for one, status in self.requests if one == path]

    def __enter__(self) -> ImageServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        if path in self.hanging:
            self.requests.append((path, 0))
            self._end.wait()
            return
        content = self.files.get(path)
        tag = f'"{hashlib.sha256(content or b"").hexdigest()}"'
        status = 404 if content is None else 304 if request.headers["If-None-Match"] == tag else 200
        self.requests.append((path, status))
        request.send_response(status)
        request.send_header("ETag", tag)
        if content is None or status != 200:
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
