"""`DriverInstaller`: keeps the driver in all plugin directories while the agent runs.

Kubelets are known to miss a new file. While no ``init`` came, the file's time is set again after 2, 4, 8, 16, 32, 32, ...
minutes, so that they run it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from kubeletx.api import Clock, PermissionDenied
from kubeletx.api.backoff import Backoff

from ..driver.install import InstallPlace, driver_content, install
from .server import AgentServer

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 15.0
FIRST_TOUCH_SECONDS: Final = 120.0
LAST_TOUCH_SECONDS: Final = 1920.0


class DriverInstaller:
    """Serves a socket in each plugin directory, and then installs the driver next to it.

    A directory that cannot be written is reported; the others work without it.
    """

    def __init__(
        self,
        places: Sequence[InstallPlace],
        *,
        server: AgentServer,
        handshakes: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`handshakes`: version of the driver that each directory's kubelet has called, by directory."""
        self._places = places
        self._server = server
        self._handshakes = handshakes
        self._clock = clock
        self._content = driver_content()
        self._problems: dict[InstallPlace, str] = {}
        self._touches: dict[InstallPlace, Backoff] = {}
        """Pauses between the touches of each place with the driver."""
        self._due: dict[InstallPlace, float] = {}

    async def start(self) -> None:
        """Serve and install in every directory.

        Raises Conflict if another agent has one, and PermissionDenied if none works.
        """
        for place in self._places:
            try:
                await self._server.listen(place.socket_directory, str(place.plugin_directory))
                install(place, self._content)
            except OSError as error:
                path = error.filename or place.directory
                is_same = str(path) == str(place.plugin_directory)
                self._problems[place] = f"{error.strerror}{'' if is_same else f' ({path})'}"
                log.warning(
                    "Failed to install the driver",
                    directory=str(place.plugin_directory),
                    err=self._problems[place],
                )
                continue
            self._touches[place] = Backoff(FIRST_TOUCH_SECONDS, LAST_TOUCH_SECONDS)
            self._due[place] = self._clock.monotonic() + self._touches[place].next()
            log.info("Installed the driver", path=str(place.executable))
        if not self._touches:
            problems = "; ".join(
                f"{place.plugin_directory}: {text}" for place, text in self._problems.items()
            )
            raise PermissionDenied(
                f"the driver can be installed in no plugin directory: {problems}; give --volume-plugin-dir"
            )

    async def run(self) -> None:
        """Check all directories periodically, until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.check()

    def check(self) -> None:
        """Install the driver again where it is missing or differs; touch it where no kubelet has found it."""
        now = self._clock.monotonic()
        for place, touches in self._touches.items():
            try:
                if install(place, self._content):
                    log.warning("Installed the driver again", path=str(place.executable))
                if str(place.plugin_directory) not in self._handshakes and now >= self._due[place]:
                    self._due[place] = now + touches.next()
                    os.utime(place.executable)
                    log.info("Touched the driver, as no kubelet has called init", path=str(place.executable))
                self._problems.pop(place, None)
            except OSError as error:
                if place not in self._problems:
                    log.warning("Failed to check the driver", path=str(place.executable), err=error.strerror)
                self._problems[place] = error.strerror or str(error)

    def state(self) -> list[dict[str, Any]]:
        return [
            {
                "path": str(place.plugin_directory),
                "problem": self._problems.get(place, ""),
                "handshake": self._handshakes.get(str(place.plugin_directory), ""),
            }
            for place in self._places
        ]
