"""The node's log files over the kubelet's API: what is served, and that nothing else is."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yarl import URL

from kubeletx.server.kubelet.node_log_files import CHUNK_BYTES
from kubeletx.server.kubelet.node_logs import NodeLogs
from tests.unit.server.api_client import Api, inline, serving

SECRET = "nobody may read this"


@asynccontextmanager
async def logs_of(directory: Path, *, queries: bool = False) -> AsyncIterator[tuple[Api, Path]]:
    """A server, and the directory that it serves, beside which there is a secret."""
    root = directory / "log"
    root.mkdir()
    (directory / "secret").write_text(SECRET)
    async with serving(directory, logs=NodeLogs(blocking=inline, root=root, queries=queries)) as api:
        yield api, root


async def get(api: Api, path: str) -> tuple[int, str]:
    """The path as it is spelt here."""
    async with (
        api.client(api.admin) as session,
        session.get(URL(api.url + path, encoded=True), allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text(errors="replace")


async def test_files_are_served_whole(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root):
        (root / "deep" / "er").mkdir(parents=True)
        text = "a line\n" * (CHUNK_BYTES // 3)
        (root / "deep" / "er" / "some log").write_text(text)
        (root / "empty").write_text("")
        assert await get(api, "/logs/deep/er/some%20log") == (200, text)
        assert await get(api, "/logs/empty") == (200, "")


async def test_what_is_not_text_says_so(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root), api.client(api.admin) as session:
        (root / "text").write_text("x")
        (root / "bytes").write_bytes(b"\0x")
        for name, kind in (("text", "text/plain; charset=utf-8"), ("bytes", "application/octet-stream")):
            async with session.get(f"/logs/{name}") as answer:
                assert answer.headers["Content-Type"] == kind
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_directory_is_a_page_of_links(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root):
        (root / "pods").mkdir()
        (root / "a<b>.log").write_text("")
        code, page = await get(api, "/logs/")
        assert code == 200
        assert re.findall(r'<a href="(.*)">(.*)</a>', page) == [
            ("a%3Cb%3E.log", "a&lt;b&gt;.log"),
            ("pods/", "pods/"),
        ]
        for path, target in (("/logs", "logs/"), ("/logs/pods", "pods/")):
            async with (
                api.client(api.admin) as session,
                session.get(path, allow_redirects=False) as answer,
            ):
                assert (answer.status, answer.headers["Location"]) == (301, target)


async def test_a_name_in_no_encoding_leaves_the_page_whole(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root):
        Path(os.fsdecode(os.fsencode(root) + b"/odd\xff.log")).write_text("")
        (root / "ключ.log").write_text("")
        async with api.client(api.admin) as session, session.get("/logs/") as answer:
            page = await answer.read()
        assert (answer.status, answer.content_type) == (200, "text/html")
        assert b'<a href="odd%FF.log">odd\xff.log</a>' in page
        assert "ключ.log</a>".encode() in page


async def test_links_lead_anywhere_below_and_nowhere_else(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root):
        (root / "pods").mkdir()
        (root / "pods" / "0.log").write_text("mine")
        (root / "absolute").symlink_to(root / "pods" / "0.log")
        (root / "relative").symlink_to("pods/0.log")
        (root / "out").symlink_to(tmp_path / "secret")
        (root / "up").symlink_to("../secret")
        (root / "around").symlink_to(tmp_path)
        (root / "loop").symlink_to("loop")
        assert await get(api, "/logs/absolute") == (200, "mine")
        assert await get(api, "/logs/relative") == (200, "mine")
        for name in ("out", "up", "around", "around/secret", "around/log/pods/0.log/../../../secret", "loop"):
            assert await get(api, f"/logs/{name}") == (404, "404 page not found")
        assert await get(api, "/logs/around/log/pods/0.log") == (200, "mine")


@pytest.mark.parametrize(
    "path",
    [
        "/logs/../secret",
        "/logs/%2e%2e/secret",
        "/logs/..%2fsecret",
        "/logs/%252e%252e/secret",
        "/logs/pods/../../secret",
        "/logs//../secret",
        "/logs/..",
        "/logs/a%00b",
        "/logs/none",
        "/logs/file/below",
        "/logs/file/",
        "/logs/fifo",
        "/logs/" + "x" * 300,
    ],
)
async def test_tricks_with_the_path_find_nothing(tmp_path: Path, path: str) -> None:
    async with logs_of(tmp_path) as (api, root):
        (root / "pods").mkdir()
        (root / "file").write_text("x")
        os.mkfifo(root / "fifo")
        code, text = await get(api, path)
        assert code == 404
        assert SECRET not in text


async def test_an_absolute_path_is_one_below_the_root(tmp_path: Path) -> None:
    async with logs_of(tmp_path) as (api, root):
        (root / "file").write_text("x")
        assert await get(api, "/logs//file") == (200, "x")
        assert (await get(api, f"/logs/{tmp_path}/secret"))[0] == 404


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, logs=NodeLogs(blocking=inline, root=tmp_path, enabled=False)) as api:
        assert await get(api, "/logs/") == (405, "logs endpoint is disabled.")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journalctl that knows one unit and shows its arguments."""
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$1" in --field=_SYSTEMD_UNIT) echo known.service;; *) echo "$@";; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.usefixtures("journal")
async def test_a_query_reads_the_journal_of_a_service(tmp_path: Path) -> None:
    async with logs_of(tmp_path, queries=True) as (api, _):
        code, text = await get(api, "/logs/?query=known&tailLines=3")
        assert code == 200
        assert text.split() == [
            "--utc",
            "--no-pager",
            "--output=short-precise",
            "--pager-end",
            "--lines=3",
            "--unit=known",
        ]


@pytest.mark.usefixtures("journal")
async def test_a_unit_is_found_among_the_sessions_of_a_year(tmp_path: Path) -> None:
    """Each login and each job of cron is a unit of its own."""
    program = tmp_path / "bin" / "journalctl"
    names = "\\nsession-%06d.scope"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in --field=*) printf "{names}" $(seq 80000); echo;; *) echo read;; esac\n'
    )
    async with logs_of(tmp_path, queries=True) as (api, _):
        assert await get(api, "/logs/?query=session-080000.scope") == (200, "read\n")


@pytest.mark.usefixtures("journal")
async def test_a_service_that_writes_files_is_read_from_them(tmp_path: Path) -> None:
    async with logs_of(tmp_path, queries=True) as (api, root):
        (root / "web").mkdir()
        (root / "web" / "web.log").write_text("of web\n")
        (root / "app.log").write_text("of app\n")
        (root / "bad.log").symlink_to(tmp_path / "secret")
        code, text = await get(api, "/logs/?query=web&query=app&query=bad&query=none")
        assert (code, text) == (200, "of web\nof app\n\nlog not found for bad\n\nlog not found for none\n")
        code, text = await get(api, "/logs/?query=web&tailLines=1")
        assert (code, "resolved to log files for [web]" in text) == (200, True)
        assert await get(api, "/logs/?query=/app.log") == (200, "of app\n")
        assert (await get(api, "/logs/?query=/../secret"))[0] == 404


@pytest.mark.usefixtures("journal")
async def test_wrong_queries_are_refused_and_all_are_ignored_where_they_are_off(tmp_path: Path) -> None:
    async with logs_of(tmp_path, queries=True) as (api, _):
        assert await get(api, "/logs/?query=a&boot=x") == (400, "boot: is not a number")
        assert (await get(api, "/logs/?query=a%20--help"))[0] == 406
    (tmp_path / "log").rmdir()
    async with logs_of(tmp_path) as (api, _):
        code, text = await get(api, "/logs/?query=known")
        assert (code, "<pre>" in text) == (200, True)


async def test_without_a_journal_files_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with logs_of(tmp_path, queries=True) as (api, _):
        assert await get(api, "/logs/?query=known") == (200, "\nlog not found for known\n")
