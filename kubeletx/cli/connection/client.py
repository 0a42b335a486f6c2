"""The command line's client of the admin socket: HTTP over a unix socket, synchronous.

It has the part of HTTP/1.1 that the agent's answers use: http.client imports email and ssl, which takes longer than a
request. A Status object that the agent sends is converted to the error that the agent raised. There are separate errors
for a socket on which no agent runs and for one that this user may not open.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kubeletx.api import Internal, PermissionDenied, TimedOut, Unavailable
from kubeletx.kube.types.api_status import Status, failure
from kubeletx.server.status import to_error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
Parameters = Mapping[str, "str | int | float | bool | None"]

UNARY_TIMEOUT_SECONDS = 150.0
"""Time to wait for an answer: longer than the agent's deadline for runtime calls (2m), so that its error arrives."""
MARGIN_SECONDS = 60.0
"""Time to wait longer for an answer than the agent waits for the effect of a request."""
_ROOT_OF_SERVICE = Path("/var/lib/kubeletx")


class Line(msgspec.Struct, frozen=True):
    """One line of a stream of JSON lines: its type, such as ADDED, and the object as undecoded JSON."""

    type: str
    object: msgspec.Raw


class _Items(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...] = ()


class AgentClient:
    """HTTP client of one agent's admin socket. Every method raises KubeletxError, with a message for users."""

    def __init__(self, socket_path: Path, *, longest_seconds: float | None = None) -> None:
        """`socket_path`: path of the admin socket. It need not exist yet.

        `longest_seconds`: limit of each wait for the agent; None: `UNARY_TIMEOUT_SECONDS`, and none for streams.
        """
        self.socket_path = socket_path
        self._longest_seconds = longest_seconds

    def get(self, path: str, type_: type[T], **parameters: Any) -> T:
        """Make a GET request and decode the answer as `type_`. `parameters`: of the URL's query."""
        return self.call("GET", path, type_, parameters)

    def items(self, path: str, type_: type[T]) -> tuple[T, ...]:
        """Make a GET request and return the items of the list that it answers."""
        return self.get(path, _Items[type_]).items  # type: ignore[valid-type]  # the type of the items is a variable

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
        url = url_of(path, parameters or {})
        with self._answer(
            method, url, body, timeout or self._longest_seconds or UNARY_TIMEOUT_SECONDS
        ) as answer:
            data = answer.read()
        try:
            return msgspec.json.decode(data, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise Internal(f"the agent gave an invalid answer to {path}: {err}") from err

    def wait_for(self, path: str, type_: type[T], seconds: float, **parameters: Any) -> T:
        """Make a POST request whose effect the agent awaits, for at most `seconds`, and decode the answer."""
        query = {**parameters, "timeoutSeconds": f"{seconds:g}"}
        return self.call("POST", path, type_, query, timeout=seconds + MARGIN_SECONDS)

    def lines(
        self, method: str, path: str, parameters: Parameters | None = None, body: bytes = b""
    ) -> Iterator[Line]:
        """Make a request and yield the lines of the JSON stream that answers it, without a time limit.

        A line of type ERROR is not yielded: the error in it is raised.
        """
        decoder = msgspec.json.Decoder(Line)
        with self._answer(method, url_of(path, parameters or {}), body) as answer:
            while raw := answer.readline():
                line = decoder.decode(raw)
                if line.type == "ERROR":
                    raise to_error(msgspec.json.decode(line.object, type=Status))
                yield line

    def chunks(self, path: str, parameters: Parameters) -> Iterator[bytes]:
        """Make a GET request and yield the bytes of its answer as they arrive."""
        with self._answer("GET", url_of(path, parameters)) as answer:
            while piece := answer.read1(64 * 1024):
                yield piece

    def upgrade(self, url: str, *headers: str) -> socket.socket:
        """Make a GET request for another protocol; returns the connection, on which the agent speaks that protocol."""
        with self._translated(), ExitStack() as stack:
            connection = stack.enter_context(_connect(self.socket_path, None))
            _ask(connection, "GET", url, headers=("Connection: Upgrade", *headers))
            stack.pop_all()
        return connection

    @contextmanager
    def _answer(
        self, method: str, url: str, body: bytes = b"", timeout: float | None = None
    ) -> Iterator[io.BufferedReader]:
        """Context manager of the body of the answer to a request."""
        timeout = timeout or self._longest_seconds
        with self._translated(timeout), _connect(self.socket_path, timeout) as connection:
            yield _ask(connection, method, url, body)

    @contextmanager
    def _translated(self, timeout: float | None = None) -> Iterator[None]:
        """Context manager that raises errors of the connection as KubeletxError."""
        try:
            yield
        except TimeoutError as err:
            raise TimedOut(f"the agent at {self.socket_path} did not answer within {timeout:g}s") from err
        except (FileNotFoundError, ConnectionRefusedError) as err:
            raise not_running(self.socket_path) from err
        except PermissionError as err:
            raise no_permission(self.socket_path) from err
        except OSError as err:
            raise Unavailable(
                f"the connection to the agent at {self.socket_path} was lost: {err or type(err).__name__}"
            ) from err


def plain(value: Any) -> Any:
    """Return an object as it is decoded from its JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def not_running(socket_path: Path) -> Unavailable:
    """Return the error that no agent runs on this socket; its message says how to start one."""
    if socket_path.parent == _ROOT_OF_SERVICE:
        return Unavailable(
            f"no agent is running on {socket_path}; 'systemctl status kubeletx' shows whether it is starting or has failed. "
            "For an agent with another root directory: 'kubeletx --root-dir DIR COMMAND'"
        )
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


def _connect(path: Path, timeout: float | None) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(str(path))
    except OSError as err:
        connection.close()
        if "too long" in str(err):
            raise FileNotFoundError(path) from err
        raise
    return connection


def _ask(
    connection: socket.socket, method: str, url: str, body: bytes = b"", headers: tuple[str, ...] = ()
) -> io.BufferedReader:
    """Send a request and read the head of the answer; returns its body. Raises the error that the agent sent."""
    lines = (f"{method} {url} HTTP/1.1", "Host: kubeletx", f"Content-Length: {len(body)}", *headers, "", "")
    connection.sendall("\r\n".join(lines).encode() + body)
    _, number, reason = f"{_line(connection)}  ".split(" ", 2)
    fields = {}
    while line := _line(connection):
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    answer: io.BufferedReader = io.BufferedReader(_Body(connection, fields))
    code = _number(number)
    if code >= 400:
        raise to_error(_status(answer.read(), code, reason.strip()))
    return answer


def _line(connection: socket.socket) -> str:
    """Read a line, and no byte after it: another protocol may begin there."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            raise ConnectionResetError("it ended before the answer")
        line += byte
    return line.decode("latin-1").strip()


def _number(text: str, base: int = 10) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise ConnectionError(f"{text!r} is no part of an HTTP answer") from None


class _Body(io.RawIOBase):
    """Body of an answer, of known length or in chunks."""

    def __init__(self, connection: socket.socket, fields: Mapping[str, str]) -> None:
        self._connection = connection
        self._is_chunked = fields.get("transfer-encoding") == "chunked"
        self._left = _number(fields.get("content-length", "0"))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes that have arrived; 0 at the end of the body. Raises OSError if the connection ends before."""
        if self._is_chunked and not self._left:
            self._left = _number(_line(self._connection), 16)
            self._is_chunked = self._left > 0
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        if self._left and not count:
            raise ConnectionResetError("it ended before the answer's end")
        self._left -= count
        if self._is_chunked and not self._left:
            _line(self._connection)
        return count


def _status(body: bytes, code: int, reason: str) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode(errors="replace").strip() or reason
        return failure(f"the agent answered {code}: {text}", reason="", code=code)
