"""The command line's client of the admin socket: plain HTTP over a unix socket, synchronous.

http.client is sufficient for everything but exec, attach and port-forward, and is imported in a few milliseconds. A
Status object that the agent sends is converted to the error that the agent raised. There are separate errors for a
socket on which no agent runs and for one that this user may not open.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kubeletx.api import Internal, PermissionDenied, TimedOut, Unavailable
from kubeletx.kube.types.api_status import Status, failure
from kubeletx.server.status import to_error

T = TypeVar("T")
Parameters = Mapping[str, "str | int | float | bool | None"]

UNARY_TIMEOUT_SECONDS = 150.0
"""Time to wait for an answer: longer than the agent's deadline for runtime calls (2m), so that its error arrives."""


class Line(msgspec.Struct, frozen=True):
    """One line of a stream of JSON lines: its type, such as ADDED, and the object as undecoded JSON."""

    type: str
    object: msgspec.Raw


class AgentClient:
    """HTTP client of one agent's admin socket. Every method raises KubeletxError, with a message for users."""

    def __init__(self, socket_path: Path) -> None:
        """`socket_path`: path of the admin socket. It need not exist yet."""
        self.socket_path = socket_path

    def get(self, path: str, type_: type[T], **parameters: Any) -> T:
        """Make a GET request and decode the answer as `type_`. `parameters`: of the URL's query."""
        return self.call("GET", path, type_, parameters)

    def call(
        self,
        method: str,
        path: str,
        type_: type[T],
        parameters: Parameters | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = None,
    ) -> T:
        """Make a request and decode the answer as `type_`.

        `parameters`: of the URL's query. `timeout`: in seconds; None: `UNARY_TIMEOUT_SECONDS`.
        """
        response = self._request(method, path, parameters or {}, body, timeout or UNARY_TIMEOUT_SECONDS)
        try:
            with response:
                return msgspec.json.decode(response.read(), type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise Internal(f"the agent gave an invalid answer to {path}: {err}") from err
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err

    def lines(
        self, method: str, path: str, parameters: Parameters | None = None, body: bytes = b""
    ) -> Iterator[Line]:
        """Make a request and yield the lines of the JSON stream that answers it, without a time limit.

        A line of type ERROR is not yielded: the error in it is raised.
        """
        response = self._request(method, path, parameters or {}, body, None)
        decoder = msgspec.json.Decoder(Line)
        try:
            with response:
                while raw := response.readline():
                    line = decoder.decode(raw)
                    if line.type == "ERROR":
                        raise to_error(msgspec.json.decode(line.object, type=Status))
                    yield line
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err

    def chunks(self, path: str, parameters: Parameters) -> Iterator[bytes]:
        """Make a GET request and yield the bytes of its answer as they arrive."""
        response = self._request("GET", path, parameters, b"", None)
        try:
            with response:
                while piece := response.read1(64 * 1024):
                    yield piece
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err

    def _request(
        self, method: str, path: str, parameters: Parameters, body: bytes, timeout: float | None
    ) -> http.client.HTTPResponse:
        connection = _UnixConnection(self.socket_path, timeout)
        response = None
        try:
            connection.request(
                method, url_of(path, parameters), body=body or None, headers={"Connection": "close"}
            )
            response = connection.getresponse()
        except TimeoutError as err:
            raise TimedOut(f"the agent at {self.socket_path} did not answer within {timeout:g}s") from err
        except (FileNotFoundError, ConnectionRefusedError) as err:
            raise not_running(self.socket_path) from err
        except PermissionError as err:
            raise no_permission(self.socket_path) from err
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err
        finally:
            if response is None:
                connection.close()
        if response.status >= 400:
            raise to_error(_status(response))
        return response

    def _lost(self, err: Exception) -> Unavailable:
        return Unavailable(
            f"the connection to the agent at {self.socket_path} was lost: {err or type(err).__name__}"
        )


def open_socket(socket_path: Path) -> socket.socket:
    """Return a connection to the admin socket. Raises Unavailable or PermissionDenied, with words for users."""
    try:
        return _connect(str(socket_path), None)
    except PermissionError as err:
        raise no_permission(socket_path) from err
    except OSError as err:
        raise not_running(socket_path) from err


def not_running(socket_path: Path) -> Unavailable:
    """Return the error that no agent runs on this socket; its message says how to start one."""
    return Unavailable(
        f"no agent is running on {socket_path}; start one with 'kubeletx --root-dir {socket_path.parent} "
        "--container-runtime-endpoint ...', or name another with 'kubeletx --root-dir DIR COMMAND'"
    )


def no_permission(socket_path: Path) -> PermissionDenied:
    """Return the error that this user may not open the socket; its message says what to do."""
    return PermissionDenied(
        f"permission denied on {socket_path}; run the command as the agent's user (with sudo)"
    )


def url_of(path: str, parameters: Parameters) -> str:
    """Return `path` with `parameters` as its query. Values None and False are left out; True becomes 1."""
    query = {
        k: ("1" if v is True else str(v)) for k, v in parameters.items() if v is not None and v is not False
    }
    return f"{path}?{urlencode(query)}" if query else path


def pod_path(namespace: str, name: str, verb: str = "") -> str:
    """Return the URL path of a pod on the admin socket, or of `verb` below it, such as ``log``."""
    path = f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return f"{path}/{verb}" if verb else path


def _status(response: http.client.HTTPResponse) -> Status:
    with response:
        body = response.read()
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode(errors="replace").strip() or response.reason
        return failure(f"the agent answered {response.status}: {text}", reason="", code=response.status)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("kubeletx", timeout=timeout)
        self._path = str(path)

    def connect(self) -> None:
        """Connect to the unix socket instead of a TCP address."""
        self.sock = _connect(self._path, self.timeout)


def _connect(path: str, timeout: float | None) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(path)
    except OSError as err:
        connection.close()
        if "too long" in str(err):
            raise FileNotFoundError(path) from err
        raise
    return connection
