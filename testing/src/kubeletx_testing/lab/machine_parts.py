"""The parts of guests that come from Debian's packages: kernels, their modules, and programs, none of them installed."""

from __future__ import annotations

import enum
import fcntl
import functools
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .process import LabError
from .tools import get_tool


class Kernel(enum.Enum):
    """The Debian kernel package that the guest boots."""

    CLOUD = "cloud"
    """A small kernel, without 9p and without the i6300esb watchdog."""
    GENERIC = "generic"


_META_PACKAGES = {Kernel.CLOUD: "linux-image-cloud-amd64", Kernel.GENERIC: "linux-image-amd64"}
_TIMEOUT_SECONDS = 300.0


@functools.cache
def kernel_package(kernel: Kernel) -> str:
    """Return the name of the package of the newest kernel, such as ``linux-image-6.1.0-50-amd64``."""
    meta = _META_PACKAGES[kernel]
    for is_refreshed in (False, True):
        if is_refreshed:
            _refresh_package_lists()
        listing = run(get_tool("apt-cache"), "depends", meta, check=is_refreshed)
        if match := re.search(r"Depends: (linux-image-\d\S*)", listing):
            return match.group(1)
    raise LabError(f"package {meta} is not in the package lists of this machine")


def _refresh_package_lists() -> None:
    """Run ``apt-get update``. Called if the package lists are missing or old."""
    run(get_tool("apt-get"), "-q", "update")


def unpack_packages(packages: Sequence[str], scratch: Path, target: Path) -> None:
    """Download packages with apt-get and unpack them below `target`, without installing them.

    `scratch`: directory for the downloads, which are removed again.
    """
    target.mkdir(exist_ok=True)
    downloads = scratch / "downloads"
    downloads.mkdir()
    download = (get_tool("apt-get"), "-q", "-o", "APT::Sandbox::User=root", "download", *packages)
    try:
        run(*download, cwd=downloads)
    except LabError:
        _refresh_package_lists()
        run(*download, cwd=downloads)
    archives = sorted(downloads.glob("*.deb"))
    if len(archives) != len(packages):
        raise LabError(f"of {', '.join(packages)} came only {', '.join(path.name for path in archives)}")
    for archive in archives:
        run(get_tool("dpkg-deb"), "--extract", str(archive), str(target))
    shutil.rmtree(downloads)


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None, check: bool = True) -> str:
    """Run a program and return its standard output. Raises LabError if it fails, unless `check` is False."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=cwd, timeout=_TIMEOUT_SECONDS, check=False
    )
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextmanager
def lock_of(path: Path) -> Iterator[None]:
    """Hold a lock during the block, so that only one process at a time builds the image."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
