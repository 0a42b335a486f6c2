"""kubectl's cp with a guest that has no tar: what it would have done is done by calls on files."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubeletx_libvirt.guest.agent import AgentSilent
from kubeletx_libvirt.guest.copies import TarCall, inside, tar_call_of
from kubeletx_libvirt.guest.files import Guest

from kubeletx.api import Conflict, StreamRequest
from kubeletx.testing import FakeClock, FakeHost
from plugins.libvirt.tests.guest.guest_double import UNIT, SystemAgent, end_of, start

LARGE = random.Random(3).randbytes(300_001)
LONG = "x" * 120


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[SystemAgent]:
    agent = SystemAgent(FakeHost(tmp_path / "host", clock=FakeClock(auto_advance=True)), missing=("tar",))
    yield agent
    await agent.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What is copied."""
    root = tmp_path / "tree"
    (root / "sub" / LONG).mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "large").write_bytes(LARGE)
    (root / "zero").touch()
    (root / "sub" / LONG / f"{LONG}ü").write_text("long")
    (root / "run me").write_text("#!/bin/sh\n")
    (root / "run me").chmod(0o755)
    (root / "link").symlink_to("large")
    return root


def packed(tree: Path, format_: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as archive:
        archive.add(tree, "tree")
    return buffer.getvalue()


def seen(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Modes and contents."""
    members: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        content: bytes | str | None = None
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        members[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return members


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
async def test_an_archive_becomes_files(guest: SystemAgent, tree: Path, tmp_path: Path, format_: int) -> None:
    target = tmp_path / "target"
    target.mkdir()
    session = await start(guest, "tar", "-xmf", "-", "-C", str(target), stdin=packed(tree, format_))
    assert await end_of(session) == (b"", b"", 0)
    assert seen(target / "tree") == seen(tree)


async def test_files_become_an_archive(guest: SystemAgent, tree: Path, tmp_path: Path) -> None:
    out, words, code = await end_of(await start(guest, "tar", "cf", "-", str(tree)))
    assert (words, code) == (b"", 0)
    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        archive.extractall(tmp_path / "out", filter="fully_trusted")
    assert seen(tmp_path / "out" / str(tree).lstrip("/")) == seen(tree)


async def test_a_call_without_an_answer_is_made_again_at_its_place(
    guest: SystemAgent, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(LARGE)
    guest.silences = [AgentSilent("away"), AgentSilent("away")]
    out, _, code = await end_of(await start(guest, "tar", "cf", "-", str(source)))
    assert code == 0
    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        member = archive.extractfile(str(source).lstrip("/"))
        assert member is not None
        assert member.read() == LARGE
    guest.silences = [AgentSilent("away"), AgentSilent("away")]
    target.mkdir()
    await end_of(await start(guest, "tar", "-xmf", "-", "-C", str(target), stdin=out))
    assert (target / str(source).lstrip("/")).read_bytes() == LARGE


async def test_no_call_is_made_again_before_its_place_was_set(guest: SystemAgent, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(LARGE)
    file = Guest(guest, UNIT)
    async with file.opened(str(source), "rb") as opened:
        guest.silences, guest.lost_seeks = [AgentSilent("away")], 1
        got = b""
        while data := await opened.read():
            got += data
    assert got == LARGE
    async with file.opened(str(target), "wb") as opened:
        guest.silences, guest.lost_seeks = [AgentSilent("away")], 1
        await opened.write(LARGE)
    assert target.read_bytes() == LARGE


async def test_what_could_be_read_in_part_alone_is_an_error(guest: SystemAgent, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(LARGE)
    guest.reads = 1
    _, words, code = await end_of(await start(guest, "tar", "cf", "-", str(tmp_path / "source")))
    assert (code, b"Input/output error" in words, b"replaced by zeros" in words) == (2, True, True)


async def test_a_refused_owner_costs_no_content(
    guest: SystemAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "chown"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho not permitted >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as packed_:
        member = tarfile.TarInfo("file")
        member.size = len(LARGE)
        packed_.addfile(member, io.BytesIO(LARGE))
    session = await start(guest, "tar", "-xmf", "-", "-C", str(tmp_path), stdin=archive.getvalue())
    _, words, code = await end_of(session)
    assert (code, (tmp_path / "file").read_bytes()) == (2, LARGE)
    assert f"{tmp_path / 'file'}: not permitted".encode() in words


async def test_a_single_file_needs_no_program_of_the_guest(guest: SystemAgent, tmp_path: Path) -> None:
    guest.missing = ("tar", "sh", "find", "stat", "chmod", "chown", "mkdir")
    source = tmp_path / "tree"
    source.write_bytes(LARGE)
    target = tmp_path / "target"
    target.mkdir()
    _, words, code = await end_of(
        await start(guest, "tar", "-xmf", "-", "-C", str(target), stdin=packed(source))
    )
    assert (code, words.count(b"chmod"), words.count(b"chown")) == (0, 1, 1)
    assert (target / "tree").read_bytes() == LARGE
    out, words, code = await end_of(await start(guest, "tar", "cf", "-", str(target / "tree")))
    assert (words, code) == (b"", 0)
    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        assert [member.size for member in archive] == [len(LARGE)]


async def test_what_cannot_be_made_is_reported_and_the_rest_is_made(
    guest: SystemAgent, tree: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    (target / "tree" / "large").mkdir(parents=True)
    session = await start(guest, "tar", "-xmf", "-", "-C", str(target), stdin=packed(tree))
    out, words, code = await end_of(session)
    assert (out, code) == (b"", 2)
    assert b"tree/large: failed to open file" in words
    assert (target / "tree" / "run me").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("missing", [(), ("find", "stat")])
async def test_what_cannot_be_read_is_reported(guest: SystemAgent, missing: tuple[str, ...]) -> None:
    guest.missing += missing
    _, words, code = await end_of(await start(guest, "tar", "cf", "-", "/no/such/file"))
    assert (code, b"/no/such/file" in words) == (2, True)


@pytest.mark.parametrize("cut", [1, 700, 300_000])
async def test_an_archive_that_breaks_off_is_an_error(
    guest: SystemAgent, tree: Path, tmp_path: Path, cut: int
) -> None:
    session = await start(guest, "tar", "-xmf", "-", "-C", str(tmp_path), stdin=packed(tree)[:cut])
    _, words, code = await end_of(session)
    assert (code, b"ends in the middle of a tar archive" in words) == (126, True)


async def test_what_is_not_an_archive_is_an_error(guest: SystemAgent) -> None:
    _, words, code = await end_of(await start(guest, "tar", "-xmf", "-", stdin=b"x" * 600))
    assert (code, b"not a tar archive" in words) == (126, True)


def test_nothing_is_made_outside_of_the_directory() -> None:
    assert inside("/a", "/b/./c/") == "/a/b/c"
    assert inside("", "b") == "b"
    with pytest.raises(Conflict, match="outside"):
        inside("/a", "b/../../c")


@pytest.mark.parametrize(
    ("words", "stdin", "call"),
    [
        ("tar -xmf - -C /x", True, TarCall("/x")),
        ("tar -xmf -", True, TarCall("")),
        ("tar --no-same-permissions --no-same-owner -xmf - -C /x", True, TarCall("/x", False, False)),
        ("tar cf - /x", False, TarCall("/x")),
        ("tar czf - /x", False, None),
        ("tar cf - /x /y", False, None),
        ("tar -xmf - -C /x y", True, None),
        ("tar -xmf - -C /x", False, None),
        ("tar", True, None),
        ("cat", True, None),
    ],
)
def test_only_kubectls_own_calls_are_served(words: str, stdin: bool, call: TarCall | None) -> None:
    assert tar_call_of(StreamRequest(command=tuple(words.split()), stdin=stdin)) == call
