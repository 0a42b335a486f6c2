"""`Handshakes`: which plugin directories' drivers have called ``init``."""

from __future__ import annotations

import asyncio

import structlog

log = structlog.get_logger(__name__)


class Handshakes:
    """Handshakes since the agent's start, by the name of the socket that they came from."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}
        self.first = asyncio.Event()
        """Set with the first handshake: a kubelet has found the driver."""

    @property
    def versions(self) -> dict[str, str]:
        """Version of the driver of each handshake."""
        return dict(self._versions)

    def note(self, name: str, version: str) -> None:
        """Note a handshake."""
        if name not in self._versions:
            log.info("A kubelet found the driver", directory=name, driver=version)
        self._versions[name] = version
        self.first.set()
