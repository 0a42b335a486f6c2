"""`scan_plugins`: returns the plugins that an agent would load, also if the import of one ends its process or hangs.

scan ─► process imports a, b ─► b ends it or hangs ─► next process imports a, c; b has the reason instead ─► result
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from kubeletx.api import Unavailable
from kubeletx.server.views import PluginView

from .request import ScanReport, ScanRequest

IMPORT_SECONDS = 30.0
"""Deadline of one plugin's import and hooks, as in a reload of the agent."""

_START = f"from {__package__}.child import main; main()"


def scan_plugins(request: ScanRequest, *, import_seconds: float = IMPORT_SECONDS) -> tuple[PluginView, ...]:
    """Return every installed plugin with its state.

    A plugin whose import ends the process, or does not return within `import_seconds`, is failed, with the reason and
    what to do. Raises Unavailable if the process ends or hangs outside of an import.
    """
    ended = dict(request.ended)
    while True:
        now = ScanReport()
        end = ""
        with _process(msgspec.structs.replace(request, ended=ended)) as (process, reader):
            buffer = b""
            while not end:
                text = _read(reader, process.pid, import_seconds)
                if text is None:
                    end = f"did not return within {import_seconds:g} s"
                elif not text:
                    end = _words(process.wait())
                *lines, buffer = (buffer + (text or b"")).split(b"\n")
                for line in lines:
                    now = msgspec.json.decode(line, type=ScanReport)
                    if now.plugins is not None:
                        return now.plugins
        if not now.importing or now.importing in ended:
            raise Unavailable(
                f"the process that loads the plugins {end}; start an agent, which logs each plugin, or disable plugins"
            )
        ended[now.importing] = (
            f"the import of {now.importing} {end}; repair or uninstall the plugin, or leave it out with "
            f"--disable-plugin={now.name}"
        )


@contextlib.contextmanager
def _process(request: ScanRequest) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the process in a session of its own; yield it with the end of a pipe from which its reports are read.

    At the end it is killed, with all processes of its session that plugins have started and not moved elsewhere.
    """
    reader, writer = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(writer)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # plugins may print, and standard output has the command's result
                pass_fds=(writer,),
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            assert process.stdin is not None  # PIPE
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(request))
                process.stdin.close()
            yield process, reader
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        os.close(reader)


def _read(reader: int, pid: int, seconds: float) -> bytes | None:
    """Return the next bytes of the pipe; empty if the process has ended, None after `seconds`.

    A process that a plugin has forked may keep the pipe open.
    """
    ends = os.pidfd_open(pid)
    try:
        readable, _, _ = select.select([reader, ends], [], [], seconds)
    finally:
        os.close(ends)
    if reader in readable:
        return os.read(reader, 65536)
    return b"" if readable else None


def _words(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit code {code}"
    try:
        return f"ended its process with {signal.Signals(-code).name}"
    except ValueError:
        return f"ended its process with signal {-code}"
