"""`CallMarkers`: files that show, after a crash, which call of plugin code ended the agent's process.

    plugin-calls/import.wasm     plugin wasm is being imported
    plugin-calls/make.edge       the runtime ``edge`` is being made, which calls the constructor of its plugin
    plugin-calls/factory.disk    the health check, pod source, admission check or panel ``disk`` is being made

A file is written before the call and removed after it, whether the call returns or raises. A file that exists at the
next start means that the process ended within the call, as by ``os._exit``, a crash of native code, or a kill signal
during a call that did not return. The call is then not made again until an operator removes the file, or another
version of the plugin is installed. Files are not synced to disk: they survive the end of the process, but a loss of
power need not be caused by the plugin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

import msgspec

from kubeletx.api import Unavailable

from .identity import PluginIdentity

DIRECTORY = "plugin-calls"
_RETRY = {"factory": "systemctl restart kubeletx"}
"""Command that makes a call again, if it is not a reload."""


class _Mark(msgspec.Struct, frozen=True):
    plugin: str
    """Plugin, distribution and version that were called."""


Watch = Callable[[str, str, PluginIdentity, bool], AbstractContextManager[None]]


def _no_watch(*_: object) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class CallMarkers:
    """Reads and writes the marker files below `root`, the agent's root directory; None: there are no files.

    `writes` False: existing files are respected, but none is written. `watch`: returns the context in which each call is
    made; it gets call, name and plugin of `around`, and True if there is a file for the call. Methods block briefly and
    may be called on any thread.
    """

    def __init__(self, root: Path | None, *, writes: bool = True, watch: Watch | None = None) -> None:
        self._watch = watch or _no_watch
        self._directory = root / DIRECTORY if root is not None else None
        self._writes = writes

    @contextlib.contextmanager
    def around(self, call: str, name: str, plugin: PluginIdentity) -> Iterator[None]:
        """Context of one call of plugin code. `call`: import, make or factory. `name`: of the plugin or registration.

        Raises Unavailable, before the call, if an earlier one ended the agent's process. Plugins of this repository
        are called without a file.
        """
        if self._directory is None or plugin.is_own:
            with self._watch(call, name, plugin, False):
                yield
            return
        path = self._directory / f"{call}.{name.replace('/', '_')}"
        if _is_left(path, plugin):
            raise Unavailable(
                f"the agent's process ended while {plugin} was called ({call}), so it is not called again; repair or "
                f"uninstall the plugin, then run: rm '{path}' && {_RETRY.get(call, 'kubeletx runtime reload')}"
            )
        written = self._writes and _write(path, plugin)
        try:
            with self._watch(call, name, plugin, written):
                yield
        finally:
            if written:
                # Only an end of the whole process leaves the file: an exception also passes here.
                path.unlink(missing_ok=True)


def _is_left(path: Path, plugin: PluginIdentity) -> bool:
    """Return True if the file exists for this version of the plugin; a file with other content counts too."""
    try:
        mark = msgspec.json.decode(path.read_bytes(), type=_Mark)
    except OSError:
        return False  # no file; or `kubeletx plugins` runs as a user who may not read the agent's directory
    except ValueError:
        return True
    return mark.plugin == str(plugin)


def _write(path: Path, plugin: PluginIdentity) -> bool:
    """Write the file and return True; return False if it cannot be written, since the call matters more."""
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(_Mark(plugin=str(plugin))))
        finally:
            os.close(descriptor)
    except OSError:
        return False  # a full disk or a read-only root directory; the start reports it where it must write
    return True


@contextlib.contextmanager
def own_interrupts() -> Iterator[None]:
    """Context of calls of plugin code, after which a SIGINT during it raises KeyboardInterrupt, and nothing else does.

    Without a SIGINT, a KeyboardInterrupt is code of the plugin: the caller handles it inside of the context, as any
    other exception. A SIGINT still interrupts the plugin's code at once. In the running agent, whose event loop handles
    SIGINT, and on other threads, there is no KeyboardInterrupt but those of plugins.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt
