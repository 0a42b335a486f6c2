"""A client of the kubelet's API, as the tests of it use: plain requests, streams, the Python client's WebSocket."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

from kubeletx_testing.apiserver import Pair


class KubeletClient:
    """Requests with a client certificate (None: without credentials)."""

    def __init__(self, port: int, credentials: Pair | None) -> None:
        self.port = port
        self.credentials = credentials

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        """Any server is taken, as API servers without a kubelet authority do."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.credentials is not None:
            context.load_cert_chain(self.credentials.cert_file, self.credentials.key_file)
        return context

    def ask(
        self, method: str, path: str, *, body: str | None = None, seconds: float = 60
    ) -> tuple[int, str, str]:
        """Status, body and its type, once the answer has ended."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls, timeout=seconds)
        with closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.getheader("Content-Type", "")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        return self.ask("GET", path)[:2]

    def json(self, path: str) -> Any:
        """The object at a path that must be there."""
        code, text = self.get(path)
        assert code == 200, text
        return json.loads(text)


def command(verb: str, pod: str, container: str, *words: str, **streams: bool) -> str:
    """Path and query of an exec or attach in the kubelet's words."""
    query = [("command", word) for word in words]
    query += [(name, "1") for name, is_wanted in streams.items() if is_wanted]
    return f"/{verb}/default/{pod}/{container}?{urlencode(query)}"
