"""A small blocking API client for tests.

It works with the double and with a real API server. Each call opens its own connection, so a server that was
stopped or frozen between two calls does not affect later calls.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from .ca import Pair
from .errors import Json, StatusError
from .resources import Resource, resource

DEADLINE_SECONDS: Final = 120.0
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


Of = str | Resource
"""Type of the parameters that name a resource: the plural name of a built-in resource, or a `Resource`."""


class Reply(msgspec.Struct, frozen=True):
    """The raw answer to a request: status code, headers (names in lower case) and body."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body, decoded as a JSON object."""
        decoded: Json = json.loads(self.body)
        return decoded


class ApiClient:
    """A blocking client of one API server, with the identity of one user.

    `credentials`: the files of a client certificate, a bearer token, or None for an anonymous user.
    """

    def __init__(self, url: str, ca_file: Path, credentials: Pair | str | None) -> None:
        self.url = url
        self._address = urlsplit(url)
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._token = credentials if isinstance(credentials, str) else None
        if isinstance(credentials, Pair):
            self._tls.load_cert_chain(credentials.cert_file, credentials.key_file)

    @property
    def tls(self) -> ssl.SSLContext:
        """TLS context with this user's client certificate, for other connections that a test makes itself."""
        return self._tls

    @property
    def headers(self) -> dict[str, str]:
        """Headers with this user's bearer token, for other connections that a test makes; empty without a token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def create(self, plural: Of, value: Json, namespace: str = "", **query: str) -> Json:
        """Create an object (POST) and return it as stored. `query`: query parameters of the request.

        This and all other methods that use `ask` raise StatusError if the server refuses the request.
        """
        return self.ask("POST", _resource(plural).path(namespace=namespace), value, query=query)

    def get(self, plural: Of, name: str, namespace: str = "", **query: str) -> Json:
        """Return the current version of the object."""
        return self.ask("GET", _resource(plural).path(name, namespace), query=query)

    def list(self, plural: Of, namespace: str = "", **query: str) -> Json:
        """Return the list object of a collection; its ``items`` are the objects."""
        return self.ask("GET", _resource(plural).path(namespace=namespace), query=query)

    def replace(self, plural: Of, value: Json, subresource: str = "", **query: str) -> Json:
        """Replace an object, or a subresource of it (PUT); returns the object as stored."""
        metadata = value["metadata"]
        path = _resource(plural).path(metadata["name"], metadata.get("namespace", ""), subresource)
        return self.ask("PUT", path, value, query=query)

    def patch(
        self,
        plural: Of,
        name: str,
        patch: Any,
        namespace: str = "",
        subresource: str = "",
        kind: str = MERGE,
        **query: str,
    ) -> Json:
        """Patch an object, or a subresource of it; returns the object as stored. `kind`: media type of the patch."""
        return self.ask("PATCH", _resource(plural).path(name, namespace, subresource), patch, kind, query)

    def delete(self, plural: Of, name: str, namespace: str = "", **options: Any) -> Json:
        """Delete the object; returns the server's answer, the deleted object or a Status.

        `options`: delete options, such as ``gracePeriodSeconds=0``.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options} if options else None
        return self.ask("DELETE", _resource(plural).path(name, namespace), body)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Json:
        """Make a request and return the JSON object of the answer.

        Raises StatusError with the server's Status if the answer is an error.
        """
        reply = self.send(method, path, body, content_type, query)
        decoded = reply.json
        if reply.code >= 400:
            raise StatusError(
                reply.code,
                decoded.get("reason", ""),
                decoded.get("message", ""),
                decoded.get("details"),
                reply.headers,
            )
        return decoded

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Make a request and return the raw answer; an error answer raises nothing.

        `body`: bytes are sent unchanged, anything else as JSON.
        """
        with self._response(method, path, body, content_type, query, headers or {}) as response:
            return Reply(response.status, _lowered(response), response.read())

    def watch(
        self,
        plural: Of,
        namespace: str = "",
        *,
        opened: Callable[[socket.socket], None] = lambda _: None,
        **query: str,
    ) -> Generator[Json, None, None]:
        """Yield the events of one watch until the server ends it.

        Close the generator to end the watch earlier. Raises StatusError if the server refuses the watch.
        `opened`: called with the connection's socket; another thread can end the watch by shutting this
        socket down.
        """
        path = _resource(plural).path(namespace=namespace)
        with self._response("GET", path, None, "", {"watch": "true", **query}, {}, opened) as response:
            if response.status >= 400:
                status = json.loads(response.read())
                raise StatusError(response.status, status.get("reason", ""), status.get("message", ""))
            while line := response.readline():
                yield json.loads(line)

    @contextmanager
    def _response(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        query: dict[str, str] | None,
        headers: dict[str, str],
        opened: Callable[[socket.socket], None] = lambda _: None,
    ) -> Generator[http.client.HTTPResponse, None, None]:
        connection = http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port, context=self._tls, timeout=DEADLINE_SECONDS
        )
        sent = {"Accept": "application/json", "User-Agent": "kubeletx-test"} | headers
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = content_type
        try:
            connection.connect()
            opened(connection.sock)
            connection.request(method, path + (f"?{urlencode(query)}" if query else ""), data, sent)
            response = connection.getresponse()
            try:
                yield response
            finally:
                response.close()
        finally:
            connection.close()


def _resource(of: Of) -> Resource:
    return resource(of) if isinstance(of, str) else of


def _lowered(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
