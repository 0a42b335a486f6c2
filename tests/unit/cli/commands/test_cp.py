"""``kubeletx cp``: real tar processes as the container's."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Channel, InvalidConfig, StreamRequest
from kubeletx.cli.commands.objects.cp import Place, parse_place, unpack
from kubeletx.server.views import PodTarget
from kubeletx.testing.sessions import FakeSession
from tests.unit.cli.commands.objects import Run, pod


@pytest.fixture
def files(agent: Any, tmp_path: Path) -> Path:
    """A directory of the container; commands in the container are processes of this machine."""
    agent.backend.put(pod())

    async def run(_target: PodTarget, _container: str, request: StreamRequest) -> FakeSession:
        session = FakeSession()
        process = await asyncio.create_subprocess_exec(
            *request.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

        async def carry() -> None:
            data = b""
            while request.stdin and (piece := await session.read_stdin()):
                data += piece
            out, err = await process.communicate(data)
            session.send(Channel.STDOUT, out)
            session.send(Channel.STDERR, err)
            session.finish(process.returncode or 0)

        session.task = asyncio.create_task(carry(), name="container")
        return session

    agent.backend.exec = run
    inside = tmp_path / "container"
    inside.mkdir()
    return inside


def test_a_file_is_copied_both_ways(files: Path, kubeletx: Run, tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a").chmod(0o750)
    assert kubeletx("cp", f"{tmp_path}/a", f"web:{files}/b").exit_code == 0
    assert kubeletx("cp", f"{tmp_path}/a", f"default/web:{files}").exit_code == 0
    assert (files / "a").read_bytes() == (files / "b").read_bytes() == content
    assert kubeletx("cp", f"web:{files}/b", f"{tmp_path}/c", "-c", "web").exit_code == 0
    assert ((tmp_path / "c").read_bytes(), (tmp_path / "c").stat().st_mode & 0o777) == (content, 0o750)


def test_a_directory_is_copied_and_its_links_are_not(files: Path, kubeletx: Run, tmp_path: Path) -> None:
    (files / "d/e").mkdir(parents=True)
    (files / "d/e/f").write_text("text")
    (files / "d/hard").hardlink_to(files / "d/e/f")
    (files / "d/link").symlink_to("/etc/passwd")
    (tmp_path / "out").mkdir()
    result = kubeletx("cp", f"web:{files}/d", f"{tmp_path}/out")
    assert result.exit_code == 0
    assert "Warning: skipping './d/link': link to '/etc/passwd'" in result.stderr
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "out").rglob("*")) == [
        "out/d",
        "out/d/e",
        "out/d/e/f",
        "out/d/hard",
    ]
    assert (tmp_path / "out/d/hard").read_text() == "text"
    assert kubeletx("cp", f"{tmp_path}/out", f"web:{files}/new").exit_code == 0
    assert (files / "new/d/e/f").read_text() == "text"


def test_what_is_missing_is_an_error(files: Path, kubeletx: Run, tmp_path: Path) -> None:
    result = kubeletx("cp", f"web:{files}/none", f"{tmp_path}/x")
    assert result.exit_code == 1
    assert "Error: tar in the container ended with exit code" in result.stderr
    assert kubeletx("cp", f"{tmp_path}/none", f"web:{files}").exit_code == 2
    assert kubeletx("cp", "web:/a", "db:/b").exit_code == kubeletx("cp", "a", "b").exit_code == 2
    assert kubeletx("cp", f"{tmp_path}/container", f"web:{files}/no/dir/x").exit_code == 1


def archive(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """An archive of members: name, type and link target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, type_, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = type_, link
            made.addfile(info)
    return io.BytesIO(out.getvalue())


@pytest.mark.parametrize("name", ["../x", "/x", "d/../../x", "other/x", "d/sub/../../../x"])
def test_a_hostile_archive_writes_nothing_outside_of_the_target(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="is outside of the copied directory"):
        unpack(archive((name, tarfile.REGTYPE, "")), "d", tmp_path / "target")
    assert not list(tmp_path.rglob("*x"))


def test_links_of_an_archive_and_of_the_target_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    members = ("d/way", tarfile.SYMTYPE, str(outside)), ("d/way/x", tarfile.REGTYPE, "")
    unpack(archive(*members, ("d/hard", tarfile.LNKTYPE, "d/absent")), "d", target)
    assert (target / "way/x").is_file()
    assert not list(outside.iterdir())
    (target / "mine").symlink_to(outside)
    with pytest.raises(InvalidConfig):
        unpack(archive(("d/mine/x", tarfile.REGTYPE, "")), "d", target)
    assert not list(outside.iterdir())


def test_places() -> None:
    assert parse_place("ns/web:/a:b") == Place("/a:b", "web", "ns")
    assert parse_place("./a:b") == Place("./a:b")
    assert parse_place("a") == Place("a")
