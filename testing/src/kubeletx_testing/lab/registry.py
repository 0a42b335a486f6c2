"""A private image registry: Debian's docker-registry on a free port of 127.0.0.1, plain HTTP."""

from __future__ import annotations

import base64
import http.client
import socket
from collections.abc import Iterable
from pathlib import Path

from .oci import Image, push
from .process import Daemon, LabError
from .tools import daemon_environment, get_tool

_CONFIG = """\
version: 0.1
log:
  level: warn
  accesslog:
    disabled: false
storage:
  filesystem:
    rootdirectory: {data}
  delete:
    enabled: true
http:
  addr: {host}:{port}
"""

_AUTH = """\
auth:
  htpasswd:
    realm: lab
    path: {path}
"""

USERNAME = "puller"
PASSWORD = "only-for-tests"
"""Password of a protected registry; `_HTPASSWD` contains its bcrypt hash."""
_HTPASSWD = "puller:$2b$04$gA/Knh61v1kXNRid1X0u..flDZuTi2GTUlZqL0NVzHGWLJAqDlwSK\n"


class PrivateRegistry:
    """An image registry as a context manager; it contains only what is pushed to it."""

    host = "127.0.0.1"

    def __init__(self, directory: Path, *, protected: bool = False) -> None:
        """`directory`: for storage, configuration and log.

        `protected`: True: requests need `USERNAME` and `PASSWORD`.
        """
        self.directory = directory
        self.protected = protected
        self.port = 0
        self.daemon: Daemon | None = None

    @property
    def address(self) -> str:
        """Address ``127.0.0.1:PORT`` of the registry."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start the registry and wait until it answers. After `stop` it starts with the same port and images."""
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port(self.host)
        config = self.directory / "registry.yml"
        text = _CONFIG.format(data=self.directory / "data", host=self.host, port=self.port)
        if self.protected:
            passwords = self.directory / "htpasswd"
            passwords.write_text(_HTPASSWD)
            text += _AUTH.format(path=passwords)
        config.write_text(text)
        self.daemon = Daemon(
            name="docker-registry",
            argv=[get_tool("docker-registry"), "serve", str(config)],
            directory=self.directory,
            # The library of its AWS driver reads HOME for a region; there is none, and none is needed.
            env=daemon_environment() | {"OTEL_TRACES_EXPORTER": "none"},
        )
        self.daemon.start()
        self.daemon.wait_until(self._answers, what="answer on /v2/")

    def stop(self) -> None:
        """Stop the registry; pushed images are kept on disk."""
        if self.daemon is not None:
            self.daemon.stop()
            self.daemon = None

    def push(self, images: Iterable[Image]) -> None:
        """Upload images to the registry. Raises LabError if it refuses one."""
        for image in images:
            try:
                push(image, host=self.host, port=self.port, headers=self._headers())
            except OSError as err:
                raise LabError(f"cannot push {image.name}:{image.tag} to {self.address}: {err}") from err

    def list_requests(self) -> list[str]:
        """Return the lines of the access log for GET and HEAD requests, oldest first. Tests count pulls with them."""
        if self.daemon is None:
            return []
        lines = self.daemon.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if '"GET /v2/' in line or '"HEAD /v2/' in line]

    def __enter__(self) -> PrivateRegistry:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _headers(self) -> dict[str, str]:
        if not self.protected:
            return {}
        word = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        return {"Authorization": f"Basic {word}"}

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=1)
        try:
            connection.request("GET", "/v2/", headers=self._headers())
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on which nothing listens."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
    return port
