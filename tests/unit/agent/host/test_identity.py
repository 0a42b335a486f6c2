"""Agent id and lock of the root directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletx.agent.host.identity import ensure_agent_id, lock_root, make_directory
from kubeletx.api import InvalidConfig


def test_a_root_directory_with_pods_of_a_kubelet_is_refused_until_they_are_gone(tmp_path: Path) -> None:
    pod = tmp_path / "pods" / "6f1d0c3a-0000-4000-8000-000000000001"
    pod.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(InvalidConfig, match="holds pods that another agent made, such as 6f1d0c3a"):
            ensure_agent_id(tmp_path)
    pod.rmdir()
    agent_id, was_here = ensure_agent_id(tmp_path)
    assert not was_here
    pod.mkdir()
    assert ensure_agent_id(tmp_path) == (agent_id, True)


def test_a_directory_of_pods_that_cannot_be_looked_into_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text("")
    with pytest.raises(InvalidConfig) as raised:
        ensure_agent_id(tmp_path)
    assert str(raised.value) == (
        f"--root-dir: cannot look for pods of another agent in {tmp_path / 'pods'}: Not a directory; make it a "
        "directory that this user may read, or move it away if it holds no pods"
    )
    assert not (tmp_path / "agent-id").exists()


def test_the_id_is_made_once(tmp_path: Path) -> None:
    first, was_there = ensure_agent_id(tmp_path)
    assert not was_there
    assert ensure_agent_id(tmp_path) == (first, True)
    assert [path.name for path in tmp_path.iterdir()] == ["agent-id"]


@pytest.mark.parametrize("content", [b"", b"not an id\n", b"\xff\xfe\x00"])
def test_a_file_that_is_not_an_id_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "agent-id").write_bytes(content)
    with pytest.raises(InvalidConfig, match="restore the file"):
        ensure_agent_id(tmp_path)
    assert (tmp_path / "agent-id").read_bytes() == content


def test_an_id_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent-id").mkdir()
    with pytest.raises(InvalidConfig, match="agent-id: cannot be read"):
        ensure_agent_id(tmp_path)


def test_an_id_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".agent-id.new").mkdir()
    with pytest.raises(InvalidConfig, match=f"--root-dir: cannot use {tmp_path}: Is a directory; free space"):
        ensure_agent_id(tmp_path)
    assert not (tmp_path / "agent-id").exists()


def test_a_second_agent_on_the_same_root_is_refused(tmp_path: Path) -> None:
    lock = lock_root(tmp_path / "root")
    script = (
        "import sys; from pathlib import Path; from kubeletx.agent.host.identity import lock_root\n"
        "try: lock_root(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "root")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"another agent runs on {tmp_path / 'root'}" in said
    os.close(lock)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.parametrize("path", ["/proc/kubeletx", "/dev/null/kubeletx"])
def test_a_root_directory_that_cannot_be_made_names_the_flag(path: str) -> None:
    with pytest.raises(InvalidConfig, match=f"--root-dir: cannot use {path}: "):
        lock_root(Path(path))


def test_a_directory_that_this_user_may_not_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root, who runs tests too, may write everywhere.
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(InvalidConfig, match=r"--pod-logs-dir: cannot use .*: Permission denied; choose"):
        make_directory(tmp_path, "--pod-logs-dir")
