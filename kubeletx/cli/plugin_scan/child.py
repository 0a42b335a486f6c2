"""The process of a scan, with a `ScanRequest` on standard input and a file descriptor as argument.

It writes `ScanReport` lines to the file descriptor, and ends at once after the result, whatever threads the plugins
have started.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from kubeletx.agent.backend.about import plugin_views
from kubeletx.agent.plugins import load_plugins
from kubeletx.api import Unavailable
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.runtimes.plugins.identity import PluginIdentity

from .request import ScanReport, ScanRequest


class ScanMarkers(CallMarkers):
    """Reports each import before it begins and after it, and prevents that of a plugin that ended an earlier process."""

    def __init__(self, root: Path, ended: Mapping[str, str], report: Callable[[ScanReport], None]) -> None:
        super().__init__(root, writes=False)
        self._ended = ended
        self._report = report

    @contextlib.contextmanager
    def around(self, call: str, name: str, plugin: PluginIdentity) -> Iterator[None]:
        """Context of one import. Raises Unavailable, before it, if an import of the plugin ended a process."""
        if (reason := self._ended.get(str(plugin))) is not None:
            raise Unavailable(reason)
        self._report(ScanReport(str(plugin), name))
        try:
            with super().around(call, name, plugin):
                yield
        finally:
            self._report(ScanReport())


def main() -> None:
    """Load the plugins, and report them."""
    descriptor = int(sys.argv[1])
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ScanRequest)

    def report(one: ScanReport) -> None:
        os.write(descriptor, msgspec.json.encode(one) + b"\n")

    found = load_plugins(
        disabled=request.disabled,
        markers=ScanMarkers(Path(request.root_dir), request.ended, report),
        sections=request.sections,
        origin=request.origin,
    )
    views = tuple(plugin_views(found.loaded, isolation=request.isolation))
    with os.fdopen(descriptor, "wb") as result:
        result.write(msgspec.json.encode(ScanReport(plugins=views)) + b"\n")
    os._exit(0)
