"""Installs the driver kubeletx.io/storage into plugin directories of kubelets, and keeps it there.

A kubelet finds it as ``<plugin directory>/kubeletx.io~storage/storage``. The file is replaced by a rename, so that a
call at any moment finds a complete driver. A kubelet runs ``init`` when it notices a new or changed file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.linux.files import UNFINISHED, replace_file

from . import program

log = structlog.get_logger(__name__)

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
    return Path(program.__file__).read_bytes()


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
