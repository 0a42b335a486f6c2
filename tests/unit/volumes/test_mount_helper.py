"""What is mounted by the system's ``mount`` program; here one of the test's own stands in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import Unavailable
from kubeletx.volumes import LinuxMounter


def put_program(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = directory / "mount"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_the_helper_gets_source_place_kind_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(tmp_path, monkeypatch, f'printf "%s\\n" "$@" > {tmp_path}/said')
    place = tmp_path / "place"
    LinuxMounter().mount_by_helper("files:/x", place, fstype="nfs", options=("ro", "nfsvers=4.2"))
    words = (tmp_path / "said").read_text().split()
    assert words == ["-t", "nfs", "-o", "ro,nfsvers=4.2", "--", "files:/x", str(place)]


def test_what_the_helper_complains_of_reaches_the_pods_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(tmp_path, monkeypatch, "echo 'access denied\nby server' >&2; exit 32")
    with pytest.raises(
        Unavailable, match=r"files:/x failed with exit status 32: access denied by server; .*mount\.nfs"
    ):
        LinuxMounter().mount_by_helper("files:/x", tmp_path / "place", fstype="nfs")


def test_a_helper_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(Unavailable, match=r"took longer than 0\.2 s") as caught:
        LinuxMounter(helper_seconds=0.2).mount_by_helper("files:/x", tmp_path / "place", fstype="nfs")
    assert caught.value.reason == "FailedMount"
