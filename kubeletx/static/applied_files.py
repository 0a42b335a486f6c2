"""Files of applied pods, one per pod, complete even after a crash: each is written under a temporary name,
synced and renamed, then the directory is synced.

A file contains the pod as its author wrote it, with its UID and creation time, so that an operator can read,
copy and remove it like any manifest. These functions block: call them in a thread.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from kubeletx.kube.text.yaml import dump_yaml
from kubeletx.kube.types.core import Pod
from kubeletx.store.files import remove_file, write_file

_SUFFIX = ".yaml"


def path_of(directory: Path, namespace: str, name: str) -> Path:
    """Return the path of a pod's file.

    A name that is too long for a file name is cut, and a hash is added.
    """
    stem = f"{namespace}_{name}"
    if len(stem) > 200:
        stem = f"{stem[:160]}_{hashlib.blake2b(stem.encode(), digest_size=16).hexdigest()}"
    return directory / f"{stem}{_SUFFIX}"


def list_files(directory: Path) -> list[Path]:
    """Return the files of all pods, sorted; what interrupted writes left is removed."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in directory.glob(f".*{_SUFFIX}.new"):
        leftover.unlink()
    return sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.is_file())


def save(path: Path, pod: Pod) -> None:
    """Write the pod's file, without its status; after return it survives a power failure. Raises OSError."""
    text = dump_yaml(msgspec.to_builtins(msgspec.structs.replace(pod, status=Pod().status)))
    write_file(path, text.encode())


def remove(path: Path) -> None:
    """Remove the pod's file; after return that survives a power failure. Succeeds if the file is missing.

    Raises OSError.
    """
    remove_file(path)
