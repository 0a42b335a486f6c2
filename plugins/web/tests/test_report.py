"""The pages as files: readable without a server, complete, and harmless."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from click.testing import CliRunner
from kubeletx_web.agent import Agent
from kubeletx_web.main import main
from kubeletx_web.report import write_report

from kubeletx.api import TimedOut, Unavailable
from plugins.web.tests.fake_agent import FakeAgent, pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONGEST = "p" * 253
"""As long as the name of a pod may be; the name of a file has at most 255 bytes."""
PNG = b"\x89PNG\r\n\x1a\n"
EVIL = "\"><script>alert(1)</script><a href='/pods/a/b'>"


class PicturesToo(FakeAgent):
    """An agent with screens and logs. `missing`: files that a report lacks because of `hung`."""

    missing = 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/vm/screenshot"):
            return web.Response(body=PNG, content_type="image/png")
        if request.path.endswith("/log"):
            return web.Response(text=f"line {EVIL}\n")
        return await super()._answer(request)


@pytest.fixture
def agent() -> PicturesToo:
    """An agent with two pods, a session of one and a panel."""
    agent = PicturesToo()
    agent.answers |= {f"/v1/pods/default/{name}": pod(name) for name in ("web", "vm", LONGEST)}
    machine: dict[str, Any] = {"virtualMachineStatus": {"name": "vm", "powerState": "running"}}
    second = pod("vm", annotations={"x": EVIL})
    second["status"] = {**second["status"], **machine, "message": EVIL}
    session = {"namespace": "default", "name": "ann", "pod": "default/web", "state": "Available"}
    agent.answers |= {
        "/v1/pods": {"items": [pod("web"), second, pod(LONGEST)]},
        "/v1/sessions": {"items": [session]},
        "/v1/panels": {"items": [{"name": "fans", "title": EVIL}, {"name": "note"}, {"name": 7}, 7]},
        "/v1/panels/fans": {"type": "png", "data": base64.b64encode(PNG).decode(), "text": EVIL},
        "/v1/panels/note": {"type": "text", "text": EVIL},
    }
    return agent


async def write(agent: PicturesToo, directory: Path, **options: float) -> dict[str, str]:
    """Write a report; returns its texts by file name."""
    client = Agent(directory / "agent.sock", timeout_seconds=60)
    async with agent.serving(client.socket_path):
        number, missing = await write_report(client, directory / "report", lambda: NOW, **options)
    found = [path for path in (directory / "report").rglob("*") if path.is_file()]
    assert (len(found), missing) == (number, agent.missing)
    return {str(path.relative_to(directory / "report")): path.read_text(errors="replace") for path in found}


async def test_every_page_is_a_file_and_every_link_leads_to_one(agent: PicturesToo, tmp_path: Path) -> None:
    files = await write(agent, tmp_path)
    assert {"index.html", "ui.css", "pods/default_web.html", "pods/default_web.yaml.html"} < files.keys()
    assert {"pods/default_vm.png", "panels/fans.png"} < files.keys()
    assert "ann" in files["pods/default_web.html"]
    assert "line" in files["pods/default_web.html"]
    for name, text in files.items():
        if name.endswith(".html"):
            assert "As of 2026-01-01 12:00:00 UTC" in text
            for link in re.findall(r' (?:href|src)="([^"#][^"]*)"', text):
                if not link.startswith("data:"):
                    target = (tmp_path / "report" / name).parent / unquote(link)
                    assert target.is_file(), f"{name} links to {link}"


async def test_a_report_has_no_scripts_and_nothing_of_a_value_is_html(
    agent: PicturesToo, tmp_path: Path
) -> None:
    for name, text in (await write(agent, tmp_path)).items():
        if name.endswith(".html"):
            assert "<script" not in text
            assert "href='/pods" not in text
            assert "sse-connect" not in text


async def test_pages_without_an_answer_in_time_are_missing(agent: PicturesToo, tmp_path: Path) -> None:
    agent.hung, agent.missing = {"/v1/pods/default/web/log"}, 1
    files = await write(agent, tmp_path, whole_seconds=2)
    assert "index.html" in files
    assert "pods/default_web.html" not in files
    assert "<a href=" not in files["index.html"].partition("web</a>")[0][-60:]


async def test_only_its_owner_reads_a_report(agent: PicturesToo, tmp_path: Path) -> None:
    await write(agent, tmp_path)
    assert (tmp_path / "report").stat().st_mode & 0o077 == 0


async def test_an_agent_that_hangs_gives_no_report(tmp_path: Path) -> None:
    agent = PicturesToo()
    agent.hung = {"/v1/node"}
    client = Agent(tmp_path / "agent.sock", timeout_seconds=0.3)
    async with agent.serving(client.socket_path):
        with pytest.raises(TimedOut, match="did not answer"):
            await write_report(client, tmp_path / "report", lambda: NOW)
    with pytest.raises(Unavailable, match="no agent answers"):
        await write_report(client, tmp_path / "report", lambda: NOW)
    assert not (tmp_path / "report").exists()


def test_without_an_agent_the_program_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["--socket", str(tmp_path / "none"), "--report", str(tmp_path / "report")]
    )
    assert result.exit_code == 1
    assert f"no agent answers on {tmp_path / 'none'}" in result.output
