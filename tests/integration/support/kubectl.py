"""kubectl as the tests of streams run it: whichever is there, speaking SPDY or WebSocket."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from kubeletx_testing.lab.kube_apiserver import ASSETS
from kubeletx_testing.lab.tools import search_path

SPDY, WEBSOCKET = "SPDY", "WebSocket"
FIRST_WITH_WEBSOCKET = 31
"""Minor version, as all of these."""
FIRST_WITH_DEBUG = 23
"""Earlier ones change ephemeral containers by an object that API servers from 1.22 on do not know."""
_SWITCHES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
_SECONDS = 60


def kubectl(protocol: str, kubeconfig: Path, *, since: int = 0) -> Kubectl:
    """One that speaks this, of this minor version or later; without one the test is skipped."""
    wanted = max(since, FIRST_WITH_WEBSOCKET) if protocol == WEBSOCKET else since
    found = [(program, _minor(program)) for program in _programs()]
    if not found:  # script/setup installs one; in CI it must be there
        assert not os.environ.get("CI"), "script/setup has installed no kubectl"
        # Who runs pytest without script/setup sees the rest.
        pytest.skip(f"there is no kubectl in PATH or in {ASSETS}")
    for program, minor in found:
        if minor >= wanted:
            return Kubectl(program, kubeconfig, protocol)
    # Debian's is 1.20, and no package has a newer one; the Python client and our own speak WebSocket in each run.
    versions = ", ".join(f"{program} is 1.{minor}" for program, minor in found)
    pytest.skip(f"this needs kubectl 1.{wanted}: {versions}")


class Kubectl:
    """Runs one program as the administrator of one cluster."""

    def __init__(self, program: str, kubeconfig: Path, protocol: str) -> None:
        self.protocol = protocol
        self._argv = (program, f"--kubeconfig={kubeconfig}")
        switch = "true" if protocol == WEBSOCKET else "false"
        self._env = {**os.environ, "HOME": str(kubeconfig.parent), **dict.fromkeys(_SWITCHES, switch)}

    def run(self, *words: str, input_: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run to the end."""
        return subprocess.run(
            [*self._argv, *words],
            input=input_,
            env=self._env,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )

    def output(self, *words: str, input_: bytes = b"") -> str:
        """What a command that must succeed printed."""
        done = self.run(*words, input_=input_)
        assert done.returncode == 0, (words, done.stderr.decode(), done.stdout.decode())
        return done.stdout.decode()

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that goes on until it is ended."""
        process = subprocess.Popen(
            [*self._argv, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self._env
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=_SECONDS)

    @contextlib.contextmanager
    def terminal(self, *words: str, columns: int, rows: int) -> Iterator[Terminal]:
        """One on a terminal of this size."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as file:
            screen = Terminal(file.fileno())
            screen.resize(columns, rows)
            process = subprocess.Popen(
                [*self._argv, *words],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=self._env,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
            )
            os.close(theirs)
            screen.process = process
            try:
                yield screen
            finally:
                process.kill()
                process.wait(_SECONDS)


class Terminal:
    """The other end of a program's terminal."""

    process: subprocess.Popen[bytes]

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def resize(self, columns: int, rows: int) -> None:
        """As a user who draws at the window."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def read(self, seconds: float = 0.5) -> str:
        """All that was shown, after a little time for more; less when the program has ended."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):  # the program has ended
                self.text += os.read(self._descriptor, 4096).decode()
        return self.text

    def wait_for(self, text: str) -> None:
        """Read until this was shown."""
        deadline = time.monotonic() + _SECONDS
        while text not in self.read():
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.text!r}"


def _programs() -> Sequence[str]:
    directories = [os.environ.get(ASSETS, ""), *search_path().split(os.pathsep)]
    paths = [str(Path(directory, "kubectl")) for directory in directories if directory]
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if os.access(path, os.X_OK)))


@cache
def _minor(program: str) -> int:
    reported = subprocess.run(
        [program, "version", "--client", "-o", "json"], capture_output=True, timeout=_SECONDS, check=True
    )
    return int(json.loads(reported.stdout)["clientVersion"]["minor"].rstrip("+"))
