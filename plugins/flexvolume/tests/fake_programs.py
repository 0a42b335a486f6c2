"""Fake programs: executable files first on PATH, which record their arguments and answer as they are told."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

NAMES = [
    "blkid",
    "ceph",
    "chgrp",
    "chmod",
    "fsck.ext3",
    "fsck.ext4",
    "losetup",
    "mkfs.ext3",
    "mkfs.ext4",
    "mkfs.xfs",
    "mount",
    "nbd-client",
    "nsenter",
    "probe",
    "qemu-storage-daemon",
    "rbd",
    "umount",
    "wipefs",
]
"""All programs that the agent runs; a test never reaches a real one."""

_SCRIPT = """#!/bin/sh
cd {directory}
printf '%s' {name} >> log
for word in "$@"; do printf ' %s' "$word" >> log; done
echo >> log
for answer in {name}."$1" {name}; do
    if [ -e "$answer.code" ]; then
        [ -e "$answer.sh" ] && . "./$answer.sh"
        cat "$answer.out"
        cat "$answer.err" >&2
        exit "$(cat "$answer.code")"
    fi
done
echo unexpected >&2
exit 99
"""


class FakePrograms:
    """The fake programs of one test."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "log").touch()
        for name in NAMES:
            path = directory / name
            path.write_text(_SCRIPT.format(directory=shlex.quote(str(directory)), name=name))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    def answer(self, program: str, out: str = "", *, code: int = 0, err: str = "", then: str = "") -> None:
        """Set the answer of a program, or of a program with its first argument, as ``rbd.map``.

        `then`: shell commands to run first.
        """
        for ending, text in (("out", out), ("err", err), ("code", str(code)), ("sh", then)):
            (self.directory / f"{program}.{ending}").write_text(text)

    @property
    def calls(self) -> list[str]:
        """Each call as one line."""
        return (self.directory / "log").read_text().splitlines()

    def forget(self) -> None:
        """Forget the calls."""
        (self.directory / "log").write_text("")
