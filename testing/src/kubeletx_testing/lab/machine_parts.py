"""The parts of guests that come from Debian's packages: kernels, their modules, and programs, none of them installed."""

from __future__ import annotations

import enum
import fcntl
import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .process import LabError, run, run_to_end
from .tools import get_tool


class Kernel(enum.Enum):
    """The Debian kernel package that the guest boots."""

    CLOUD = "cloud"
    """A small kernel, without 9p and without the i6300esb watchdog."""
    GENERIC = "generic"


_META_PACKAGES = {Kernel.CLOUD: "linux-image-cloud-amd64", Kernel.GENERIC: "linux-image-amd64"}


@functools.cache
def kernel_package(kernel: Kernel) -> str:
    """Return the name of the package of the newest kernel, such as ``linux-image-6.1.0-50-amd64``."""
    meta = _META_PACKAGES[kernel]
    for is_refreshed in (False, True):
        if is_refreshed:
            _refresh_package_lists()
        listing = run_to_end(get_tool("apt-cache"), "depends", meta)
        if match := re.search(r"Depends: (linux-image-\d\S*)", listing.stdout):
            return match.group(1)
    raise LabError(f"package {meta} is not in the package lists of this machine")


def _refresh_package_lists() -> None:
    """Run ``apt-get update``. Called if the package lists are missing or old."""
    run(get_tool("apt-get"), "-q", "update")


def silent(_step: str) -> None:
    """Show nothing."""


def unpack_packages(
    packages: Sequence[str], scratch: Path, target: Path, *, say: Callable[[str], None] = silent
) -> None:
    """Download packages with apt-get and unpack them below `target`, without installing them.

    `scratch`: directory for the downloads, which are removed again. `say`: called with a text at each package.
    """
    target.mkdir(parents=True, exist_ok=True)
    downloads = scratch / "downloads"
    downloads.mkdir()
    for number, package in enumerate(packages, 1):
        say(f"downloading {package} ({number} of {len(packages)} packages)")
        download = (get_tool("apt-get"), "-q", "-o", "APT::Sandbox::User=root", "download", package)
        try:
            run(*download, cwd=downloads)
        except LabError:
            say("refreshing package lists")
            _refresh_package_lists()
            run(*download, cwd=downloads)
        archives = list(downloads.glob("*.deb"))
        if len(archives) != 1:
            raise LabError(f"apt-get downloaded {len(archives)} archives of {package}, and one was expected")
        run(get_tool("dpkg-deb"), "--extract", archives[0], target)
        archives[0].unlink()
    downloads.rmdir()


@contextmanager
def only_builder(directory: Path) -> Iterator[Path]:
    """Hold the lock of a directory of images during the block, and yield a scratch directory in it.

    Removes the scratch directories of builders that were killed.
    """
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left in directory.glob("build-*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix="build-", dir=directory) as scratch:
            yield Path(scratch)


def module_files(directory: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of kernel modules and of their dependencies, sorted so that each comes after those it needs.

    `directory`: ``lib/modules/VERSION`` of the kernel. Modules that the kernel lacks or has built in are skipped.
    """
    known = {path.name.removesuffix(".ko").replace("-", "_"): path for path in directory.rglob("*.ko")}
    order: dict[str, Path] = {}

    def visit(name: str) -> None:
        path = known.get(name.replace("-", "_"))
        if path is None or path.name in order:
            return
        match = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for dependency in (match.group(1).decode() if match else "").split(","):
            visit(dependency)
        order[path.name] = path

    for name in names:
        visit(name)
    return list(order.values())
