"""The root file system of both images, read-only: this Python, the guardian's rooms, busybox, and the libraries of them all."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

import msgspec
import pluggy
import yaml

import kubeletx
from kubeletx_testing.lab.process import run
from kubeletx_testing.lab.tools import get_tool

_LEFT_OUT: Final = shutil.ignore_patterns(
    "site-packages", "test", "tests", "idlelib", "tkinter", "_tkinter*", "ensurepip", "lib2to3", "config-*"
)


def make_root(image: Path) -> None:
    """Make the image of a file system; it is the same for all boot loaders."""
    tree = image.with_suffix("")
    for name in ("bin", "dev", "efi", "persist", "proc", "run", "sys", "tmp"):
        (tree / name).mkdir(parents=True)
    python = Path(sys.executable).resolve()
    (tree / "bin" / "python").symlink_to(python)
    for name in ("busybox", "grub-editenv"):
        shutil.copy(get_tool(name), tree / "bin")
    shutil.copy(Path(__file__).with_name("inside.sh"), tree)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, tree / library.relative_to("/"), ignore=_LEFT_OUT)
    for package in (kubeletx, msgspec, pluggy, yaml):
        shutil.copytree(package.__path__[0], tree / "site" / package.__name__)
    rooms = (tree / "site" / "kubeletx" / room for room in ("api", "health", "linux"))
    run(sys.executable, "-m", "compileall", "-q", *rooms)
    libraries = run(get_tool("ldd"), python, tree / "bin" / "grub-editenv", *tree.rglob("*.so"))
    for path in {str(python), *re.findall(r"(/\S+) \(0x", libraries)}:
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    run(get_tool("mkfs.ext4"), "-q", "-O", "^has_journal", "-d", tree, image, "256M")
    shutil.rmtree(tree)
