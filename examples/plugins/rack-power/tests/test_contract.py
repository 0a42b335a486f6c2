"""The contract suite of kubeletx on this plugin."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubeletx_rack_power.remedy import RackPower

from kubeletx.api import Remedy, RemedyRequest
from kubeletx.testing import FakeRemedyHost
from kubeletx.testing.contract import RemedyContract


class Rack(ThreadingHTTPServer):
    """A power controller. `operations`: IDs of the operations that it has carried out."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.operations: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Rack

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.operations.add(self.path)
        self.answer(200)

    def do_GET(self) -> None:
        self.answer(200 if self.path in self.server.operations else 404)

    def answer(self, code: int) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps({"state": "done"}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


class TestRackPower(RemedyContract):
    @pytest.fixture
    def rack(self) -> Iterator[Rack]:
        with Rack() as rack:
            thread = threading.Thread(target=rack.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            yield rack
            rack.shutdown()
            thread.join()

    @pytest.fixture
    def make_remedy(self) -> Callable[[], Remedy]:
        return lambda: RackPower(None, FakeRemedyHost())

    @pytest.fixture
    def make_request(self, rack: Rack) -> Callable[[str], RemedyRequest]:
        return lambda operation: RemedyRequest(
            operation=operation, node="node-1", parameters={"url": rack.url}
        )

    @pytest.fixture
    def acts(self, rack: Rack) -> Callable[[], int]:
        return lambda: len(rack.operations)
