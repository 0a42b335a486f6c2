"""The source: each file ``*.json`` of a directory is one pod."""

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import PluginHost, PodSourceSink


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section ``kubeletx.plugins.directory-pods`` of the configuration."""

    path: str = ""
    """The directory; empty: there are no pods."""
    seconds: float = 5.0
    """Seconds between reads of the directory."""


class DirectoryPods:
    """Reads pods from the files of a directory. Implements `kubeletx.api.PodSource`."""

    def __init__(self, settings: Settings, host: PluginHost) -> None:
        """Keep the settings and the host, as every factory does; no I/O here."""
        self._settings = settings
        self._host = host

    async def run(self, sink: PodSourceSink) -> None:
        """Read the directory again and again: pass each change to the sink, then report that the pods are complete."""
        known: dict[tuple[str, str], dict[str, Any]] = {}
        while True:
            files = await self._host.blocking(read, self._settings.path)
            for key in known.keys() - files.keys():
                sink.remove(*key)
            for key, pod in files.items():
                if known.get(key) != pod:
                    sink.set(pod)
            known = files
            sink.synced()
            await self._host.clock.sleep(self._settings.seconds)


def read(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Pods of the directory by namespace and name; empty without a directory.

    Raises for a file that is not a JSON object with a name.
    """
    pods = []
    for file in sorted(Path(path).glob("*.json")) if path else ():
        with contextlib.suppress(FileNotFoundError):  # removed since the directory was listed
            pods.append(json.loads(file.read_text()))
    return {(pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]): pod for pod in pods}
