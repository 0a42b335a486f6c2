"""`DriverInstaller`: keeps the driver kubeletx.io/storage in all plugin directories of kubelets while the agent runs.

A kubelet finds it as ``<plugin directory>/kubeletx.io~storage/storage``. The file is replaced by a rename, so that a
call at any moment finds a complete driver. A kubelet runs ``init`` when it notices a new or changed file. Kubelets are
known to miss that; while no ``init`` came, the file's time is set again after 2, 4, 8, 16, 32, 32, ... minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Clock, PermissionDenied
from kubeletx.api.backoff import Backoff
from kubeletx.linux.files import UNFINISHED, replace_file

from ..driver import program
from .server import AgentServer

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 15.0
FIRST_TOUCH_SECONDS: Final = 120.0
LAST_TOUCH_SECONDS: Final = 1920.0
DEFAULT_PLUGIN_DIRECTORY: Final = Path("/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
KNOWN_PLUGIN_DIRECTORIES: Final = (
    Path("/etc/kubernetes/volumeplugins"),
    Path("/home/kubernetes/flexvolume"),
    Path("/var/lib/kubelet/volumeplugins"),
    Path("/var/lib/kubelet/volume-plugins"),
)
"""Plugin directories of AKS, GKE, Magnum and kubespray before 2.11."""

_DRIVER_DIRECTORY: Final = "kubeletx.io~storage"
_EXECUTABLE: Final = "storage"
_UNFINISHED: Final = f".{_EXECUTABLE}{UNFINISHED}"
"""What an interrupted installation leaves."""


class InstallPlace(msgspec.Struct, frozen=True):
    """One plugin directory of a kubelet."""

    plugin_directory: Path

    @property
    def directory(self) -> Path:
        return self.plugin_directory / _DRIVER_DIRECTORY

    @property
    def executable(self) -> Path:
        return self.directory / _EXECUTABLE

    @property
    def socket_directory(self) -> Path:
        """Directory of the agent's socket, which the driver expects next to its own file."""
        return self.directory / Path(program.SOCKET).parent


def install_places(
    given: Iterable[Path],
    *,
    default: Path = DEFAULT_PLUGIN_DIRECTORY,
    known: Iterable[Path] = KNOWN_PLUGIN_DIRECTORIES,
) -> tuple[InstallPlace, ...]:
    """Return the plugin directories in which the driver is installed, each once, whatever links lead to it.

    They are the `given` ones, or else `default`, and the existing ones of `known`.
    """
    chosen = [*(given or (default,)), *(path for path in known if path.is_dir())]
    return tuple(InstallPlace(path) for path in dict.fromkeys(path.resolve() for path in chosen))


def driver_content() -> bytes:
    """Return the content of the driver's file."""
    return files(program.__package__).joinpath(Path(program.__file__).name).read_bytes()


def is_installed(place: InstallPlace, content: bytes) -> bool:
    """Return True if the driver is there, executable and of this version. Raises OSError."""
    try:
        is_executable = bool(place.executable.stat().st_mode & 0o111)
        return is_executable and place.executable.read_bytes() == content
    except FileNotFoundError:
        return False


def install(place: InstallPlace, content: bytes) -> bool:
    """Install the driver if it is missing or differs; return True if it was written. Raises OSError."""
    if is_installed(place, content):
        return False
    place.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_file(place.executable, content, mode=0o755)
    return True


def uninstall(place: InstallPlace) -> bool:
    """Remove the driver and its directories; return True if it was there. Raises OSError.

    Files of others are left in place. Call it only while no agent serves the directory.
    """
    was_there = place.executable.exists()
    for path in (place.executable, place.directory / _UNFINISHED, place.directory / program.SOCKET):
        path.unlink(missing_ok=True)
    for directory in (place.socket_directory, place.directory):
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # it contains files of others
            log.warning("Left a directory of the driver in place", path=str(directory))
    return was_there


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
