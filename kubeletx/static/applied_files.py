"""Reads, writes and removes the files of pods of ``kubeletx apply``, one file per pod.

A file is complete even after a crash: it is written under a temporary name, synced to disk and renamed; then the
directory is synced. It contains the pod as its author wrote it, with its UID and creation time, so that an operator
can read, copy and remove it like any manifest. These functions block: call them in a thread.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from kubeletx.kube.text.yaml import dump_yaml
from kubeletx.kube.types.core import Pod
from kubeletx.linux.files import remove_file, replace_file

_SUFFIX = ".yaml"


def path_of(directory: Path, namespace: str, name: str) -> Path:
    """Return the path of a pod's file: ``<namespace>_<name>.yaml`` in `directory`.

    If that is too long for a file name, it is shortened and a hash is added.
    """
    stem = f"{namespace}_{name}"
    if len(stem) > 200:
        stem = f"{stem[:160]}_{hashlib.blake2b(stem.encode(), digest_size=16).hexdigest()}"
    return directory / f"{stem}{_SUFFIX}"


def list_files(directory: Path) -> list[Path]:
    """Return the files of all pods, sorted; make the directory, and remove files left by interrupted writes."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in directory.glob(f".*{_SUFFIX}.new"):
        leftover.unlink()
    return sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.is_file())


def save(path: Path, pod: Pod) -> None:
    """Write the pod, without its status, to the file at `path` with `write`."""
    write(path, msgspec.structs.replace(pod, status=Pod().status))


def write(path: Path, item: msgspec.Struct) -> None:
    """Write an API object to the file at `path`, with mode 0600. Raises OSError.

    When the function returns, the file survives a power failure.
    """
    replace_file(path, dump_yaml(msgspec.to_builtins(item)).encode())


def remove(path: Path) -> None:
    """Remove the file at `path`; succeeds if it is missing. Raises OSError.

    When the function returns, the removal survives a power failure.
    """
    remove_file(path)
