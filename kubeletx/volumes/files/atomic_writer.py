"""Writes all files of a volume in one step, for config map, secret and downward API volumes.

See docs/kubelet-parity.md, row V4.

    <volume>/name                 symbolic link to ..data/name; containers open this name
    <volume>/..data               symbolic link to ..<time>.<random>; replaced by one rename
    <volume>/..<time>.<random>/   the files of one generation

A reader sees the old files or the new ones, never a mixture. If no file has changed, no new generation is written. A
crash leaves at most one generation that no link refers to; the next write removes it. All functions block.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from .held import open_regular
from .ownership import set_group
from .safe_paths import remove_tree

DATA: Final = "..data"
_DATA_NEW: Final = "..data_tmp"
DIRECTORY_MODE: Final = 0o755
DEFAULT_MODE: Final = 0o644
_LONGEST_PATH: Final = 4096


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content, mode and owner of one file to write; the repr does not show the content.

    `user`: numeric user id of the owner; None: the agent's user.
    """

    data: bytes
    mode: int = DEFAULT_MODE
    user: int | None = None

    def __repr__(self) -> str:
        return f"FileContent({len(self.data)} bytes, mode={self.mode:o})"


def write_files(target: Path, files: Mapping[str, FileContent], *, group: int | None = None) -> bool:
    """Make the directory `target` contain exactly `files`; return True if anything had to be written.

    `files`: content by path relative to `target`. `group`: the pod's fsGroup, which may read every file; None: no group
    is set. Raises ValueError for a path that is not allowed, and OSError.
    """
    for path in files:
        check_path(path)
    current = _current(target)
    expected = _expected(files, group)
    changed = current is None or _read(target / current, expected) != expected
    if changed:
        _remove_unused(target, current)
        current = _write_generation(target, files, group)
        _swap(target, current)
    assert current is not None
    _link_names(target, files)
    _remove_strays(target, files, current)
    return changed


def check_path(path: str) -> None:
    """Raise ValueError with the reason if `path` is not allowed as the relative path of a file in a volume."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path:
        raise ValueError(f"{path!r} is not a file name")
    if path.startswith("/"):
        raise ValueError(f"{path!r} is an absolute path")
    if ".." in parts:
        raise ValueError(f"{path!r} contains '..'")
    if parts[0].startswith(".."):
        raise ValueError(f"{path!r} begins with '..'")
    if len(path) > _LONGEST_PATH or any(len(os.fsencode(part)) > 255 for part in parts):
        raise ValueError(f"{path[:40]!r}... is too long")


def _current(target: Path) -> str | None:
    try:
        name = os.readlink(target / DATA)
    except OSError:  # not there, or no link: the first write
        return None
    return name if "/" not in name and (target / name).is_dir() else None


def _expected(files: Mapping[str, FileContent], group: int | None) -> dict[str, tuple[int, bytes]]:
    extra = 0 if group is None else 0o440
    return {str(PurePosixPath(path)): (file.mode | extra, file.data) for path, file in files.items()}


def _read(directory: Path, expected: Mapping[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of the present files, by path.

    Of each file, only as much is read as the comparison with `expected` needs.
    """
    contents = {}
    for path in _walk(directory):
        name = str(path.relative_to(directory))
        size = len(expected[name][1]) if name in expected else 0
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                contents[name] = (stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(size + 1))
        except OSError as err:
            if err.errno != errno.EINVAL:
                raise
            contents[name] = (-1, b"")  # no file of ours: the next generation replaces it
    return contents


def _walk(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory, followlinks=False):
        yield from (Path(parent, name) for name in names)


def _write_generation(target: Path, files: Mapping[str, FileContent], group: int | None) -> str:
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime())
    directory = Path(tempfile.mkdtemp(prefix=stamp, dir=target))
    try:
        _fill(directory, files, group)
    except BaseException:  # a full disk; the next try needs the space
        remove_tree(directory)
        raise
    return directory.name


def _fill(directory: Path, files: Mapping[str, FileContent], group: int | None) -> None:
    for relative, content in files.items():
        path = directory / relative
        for parent in reversed(path.relative_to(directory).parents[:-1]):
            made = directory / parent
            made.mkdir(exist_ok=True)
            made.chmod(DIRECTORY_MODE)
        path.write_bytes(content.data)
        path.chmod(content.mode)
        if content.user is not None:
            os.chown(path, content.user, -1)
    directory.chmod(DIRECTORY_MODE)
    set_group(directory, group, read_only=True)


def _swap(target: Path, generation: str) -> None:
    fresh = target / _DATA_NEW
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(generation)
    fresh.rename(target / DATA)


def _link_names(target: Path, files: Mapping[str, FileContent]) -> None:
    for name in _first_parts(files):
        link, wanted = target / name, f"{DATA}/{name}"
        if link.is_symlink() and os.readlink(link) == wanted:
            continue
        remove_tree(link)
        link.symlink_to(wanted)


def _remove_unused(target: Path, current: str | None) -> None:
    """Remove generations other than `current`, which interrupted writes have left."""
    for path in list(target.glob("..*")):
        if path.name not in (DATA, current):
            remove_tree(path)


def _remove_strays(target: Path, files: Mapping[str, FileContent], current: str) -> None:
    wanted = {*_first_parts(files), DATA, current}
    for path in list(target.iterdir()):
        if path.name not in wanted:
            remove_tree(path)


def _first_parts(files: Mapping[str, FileContent]) -> set[str]:
    return {PurePosixPath(path).parts[0] for path in files}
