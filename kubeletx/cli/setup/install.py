"""Writes the files of a node and removes them again.

Each file that `write` makes is recorded with the hash of its content, before it is written; so `remove` knows which
files are unchanged, also after a crash of `write`. `write` renews those, as after an upgrade, except the settings and the
pod network; any other file that exists is never overwritten.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kubeletx.linux.files import replace_file
from kubeletx.linux.json_files import read_json

from .files import WantedFile

RECORD: Final = "/etc/kubeletx/.setup.json"
_VERSION: Final = 1


class SetupRecord(msgspec.Struct, kw_only=True):
    """Record of setup: SHA-256 of each file by its path, and directories. `started`: setup enabled the service.

    `renewed`: SHA-256 that renewed files had before, which they still have if setup was killed.
    """

    version: int = _VERSION
    files: dict[str, str] = {}
    renewed: dict[str, str] = {}
    directories: list[str] = []
    started: bool = False


class SetupStep(NamedTuple):
    """One path, and what is done with it. `verb`: write, renew, keep or remove. `file` None: nothing is written."""

    verb: str
    path: str
    reason: str
    file: WantedFile | None = None


class SetupFiles:
    """The files below one root directory, and the record of the files that setup has written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record = read_json(self.at(RECORD), SetupRecord, _VERSION) or SetupRecord()

    def at(self, path: str) -> Path:
        """Return where an absolute path of the node is."""
        return self.root / path.lstrip("/")

    def plan(self, wanted: Iterable[WantedFile]) -> list[SetupStep]:
        """Return a step for each file: it is written, or kept as it is."""
        return [self._step(file) for file in wanted]

    def _step(self, file: WantedFile) -> SetupStep:
        for pattern in (file.path, *file.instead):
            for found in sorted(self.root.glob(pattern.lstrip("/"))) or self._dangling(pattern):
                path = f"/{found.relative_to(self.root)}"
                if path not in self.record.files:
                    is_ours = path in self.record.directories
                    return SetupStep("keep", path, "setup wrote it" if is_ours else "not overwritten")
                if not self._is_unchanged(path):
                    return SetupStep("keep", path, "was changed")
                if file.text is None or path != file.path or found.read_bytes() == file.text.encode():
                    return SetupStep("keep", path, "setup wrote it")
                if not file.renewed:
                    return SetupStep("keep", path, "not renewed")
                return SetupStep("renew", path, file.purpose, file)
        return SetupStep("write", file.path, file.purpose, file)

    def _dangling(self, pattern: str) -> list[Path]:
        """Return the path if it is a symbolic link to nothing, which `glob` does not find."""
        return [self.at(pattern)] if self.at(pattern).is_symlink() else []

    def write(self, steps: Iterable[SetupStep]) -> None:
        """Write the files of the steps. Raises OSError."""
        files = [step.file for step in steps if step.file is not None]
        for file in files:
            if file.text is not None:
                if file.path in self.record.files and self.at(file.path).exists():
                    self.record.renewed[file.path] = _hash(self.at(file.path).read_bytes())
                self.record.files[file.path] = _hash(file.text.encode())
        for file in files:
            self._make_directory(file.path if file.text is None else str(Path(file.path).parent))
        if files:
            self.save()
        for file in files:
            if file.text is not None:
                replace_file(self.at(file.path), file.text.encode(), 0o644)

    def _make_directory(self, path: str) -> None:
        """Make a directory that every user may enter, and its parents. Raises OSError for a place outside the root."""
        missing = [
            parent for parent in (Path(path), *Path(path).parents) if not self.at(str(parent)).exists()
        ]
        there = missing[-1].parent if missing else Path(path)
        if not self.at(str(there)).resolve().is_relative_to(self.root.resolve()):
            raise OSError(errno.EXDEV, f"a symbolic link leads out of {self.root}", str(there))
        for parent in reversed(missing):
            self.at(str(parent)).mkdir()
            self.at(str(parent)).chmod(0o755)  # the umask is not applied
            self.record.directories.append(str(parent))

    def save(self) -> None:
        """Write the record. Raises OSError."""
        replace_file(self.at(RECORD), msgspec.json.format(msgspec.json.encode(self.record)))

    def removal(self) -> list[SetupStep]:
        """Return a step for each recorded file that exists: it is removed, or kept since it was changed."""
        steps = []
        for path in self.record.files:
            if self.at(path).exists() or self.at(path).is_symlink():
                verb, reason = (
                    ("remove", "setup wrote it") if self._is_unchanged(path) else ("keep", "was changed")
                )
                steps.append(SetupStep(verb, path, reason))
        return steps

    def _is_unchanged(self, path: str) -> bool:
        there = self.at(path)
        known = self.record.files[path], self.record.renewed.get(path)
        return not there.is_symlink() and _hash(there.read_bytes()) in known

    def remove(self, steps: Iterable[SetupStep]) -> None:
        """Remove the files of the steps, the record, and the directories that setup made and that are empty now."""
        for step in steps:
            if step.verb == "remove":
                self.at(step.path).unlink(missing_ok=True)
        self.at(RECORD).unlink(missing_ok=True)
        for path in sorted(self.record.directories, key=len, reverse=True):
            try:
                self.at(path).rmdir()
            except OSError:  # another program's files are in it, or it is gone
                continue
        self.record = SetupRecord()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
