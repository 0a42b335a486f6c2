"""Simulated cores as a program of their own, with their HTTP API, for the demo, integration tests and benchmarks."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .process import Daemon, LabError

_ADDRESS = re.compile(r"^(?:core \S+ |api http://)(\S+)$", re.MULTILINE)
_CALL_SECONDS = 120.0


class PrivateCores:
    """A cluster of simulated cores, as a context manager. `addresses`: of its cores, for --fornaxcore-url."""

    def __init__(self, directory: Path, *, count: int = 1, flags: Sequence[str] = ()) -> None:
        """`directory`: for the log. `count`: number of cores."""
        self._count = count
        argv = [sys.executable, "-m", "kubeletx_testing.fornaxcore", "--api", "127.0.0.1:0", *flags]
        for _ in range(count):
            argv += ["--listen", "127.0.0.1:0"]
        self.daemon = Daemon(name="fornaxcore", argv=argv, directory=directory)
        self.addresses: tuple[str, ...] = ()
        self._api = ""

    def __enter__(self) -> PrivateCores:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the cores, and wait for their addresses."""
        self.daemon.log_path.unlink(missing_ok=True)
        self.daemon.start()
        self.daemon.wait_until(lambda: len(self._shown()) > self._count, what="addresses")
        *addresses, self._api = self._shown()
        self.addresses = tuple(addresses)

    def stop(self) -> None:
        """End the cores; succeeds if they do not run."""
        self.daemon.stop()

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Call the HTTP API and return the answer. Raises LabError with the error of a refused call, or without an answer."""
        connection = http.client.HTTPConnection(self._api, timeout=_CALL_SECONDS)
        try:
            connection.request(method, path, msgspec.json.encode(body) if body else None)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as err:
            raise LabError(
                f"{method} {path}: the cores do not answer: {err}; {self.daemon.log_tail(5)}"
            ) from err
        finally:
            connection.close()
        if response.status >= 300:
            raise LabError(f"{method} {path}: {response.status} {data.decode(errors='replace')[:500]}")
        return msgspec.json.decode(data)

    def find(self, kind: str, id: str) -> dict[str, Any] | None:
        """Return the pod, session or node as the first core that has it describes it; `kind` is plural."""
        for found in self.call("GET", f"/{kind}").values():
            for one in found:
                if one["id"] == id:
                    described: dict[str, Any] = one
                    return described
        return None

    def violations(self) -> list[str]:
        """Messages of nodes that break the protocol, and revisions that do not follow without a reason."""
        logs = self.call("GET", "/log?last=0").values()
        return [text for one in logs for text in (*one["gaps"], *one["violations"])]

    def _shown(self) -> list[str]:
        return _ADDRESS.findall(self.daemon.log_path.read_text())
