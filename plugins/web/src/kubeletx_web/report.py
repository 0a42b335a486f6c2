"""`write_report`: the pages as files that a browser shows without a server.

    DIR/index.html, ui.css, pods/NAMESPACE_NAME.html and .yaml.html, pictures of machines and panels

They have no scripts. Links between them are relative, and links that need a server are removed.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from .agent import Agent
from .http import Request, Response
from .server import Pages
from .state import PANELS, NodeState, panel_path
from .values import field, listed, picture_of

WHOLE_SECONDS: Final = 20.0
"""Longest time for all files together; ``kubeletx report`` waits 60 s."""
PARALLEL: Final = 8
"""Pages that are made at the same time."""
_SCRIPT: Final = re.compile(r"<script [^>]*></script>")
_LINK: Final = re.compile(r' (href|src|data-follow)="((?:/|\?)[^"]*)"')
_LIVE: Final = re.compile(r' (hx-ext|sse-connect|hx-get|hx-trigger|hx-swap)="[^"]*"')
_FORM: Final = re.compile(r"<form.*?</form>", re.DOTALL)
_FOOTER: Final = re.compile(r"<footer.*?</footer>", re.DOTALL)


class _Open:
    async def check(self, request: Request) -> str:
        """Let each request pass: they are the report's own."""
        return ""


async def write_report(
    agent: Agent, directory: Path, now: Callable[[], datetime], *, whole_seconds: float = WHOLE_SECONDS
) -> tuple[int, int]:
    """Write all pages below the directory, which is made; returns the numbers of files written and missing.

    `whole_seconds`: see `WHOLE_SECONDS`. Raises KubeletxError if the agent does not answer, OSError if a file cannot be
    written.
    """
    pages, slots = Pages(agent, _Open(), now=now), asyncio.Semaphore(PARALLEL)
    deadline = asyncio.get_running_loop().time() + whole_seconds

    async def ask(path: str) -> Response | None:
        try:
            async with slots, asyncio.timeout_at(deadline):
                response = await pages.respond(Request("GET", path))
        except TimeoutError:
            return None
        return response if response.status == 200 else None

    try:
        async with pages.feed.viewing() as state:
            await pages.feed.settle()
            files = _files(state)
            responses = await asyncio.gather(*map(ask, files))
    finally:
        await pages.close()
    answered = {
        path: response for path, response in zip(files, responses, strict=True) if response is not None
    }
    await asyncio.to_thread(_write, directory, files, answered, now())
    return len(answered), len(files) - len(answered)


def _write(
    directory: Path, files: Mapping[str, str], answered: Mapping[str, Response], now: datetime
) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    by_path = {unquote(path): files[path] for path in answered}
    for path, response in answered.items():
        target = directory / files[path]
        target.parent.mkdir(exist_ok=True)
        is_page, up = response.media_type == "text/html", "../" * files[path].count("/")
        target.write_bytes(_local(response.body, up, by_path, now) if is_page else response.body)


def _files(state: NodeState) -> Mapping[str, str]:
    """Return the file of each page, by its path."""
    files = {"/static/ui.css": "ui.css", "/": "index.html"}
    for panel in listed(state.others.get(PANELS)):
        name = field(panel, "name", "")
        if picture_of(state.others.get(panel_path(name))) is not None:
            files[f"/panels/{quote(name, safe='')}.png"] = f"panels/{_plain(name)}.png"
    for pod in state.pods.values():
        path = f"/pods/{quote(pod.namespace, safe='')}/{quote(pod.name, safe='')}"
        stem = f"pods/{_plain(f'{pod.namespace}_{pod.name}')}"
        files |= {path: f"{stem}.html", f"{path}/yaml": f"{stem}.yaml.html"}
        if pod.status.virtual_machine_status is not None:
            files[f"{path}/screen.png"] = f"{stem}.png"
    return files


def _local(body: bytes, up: str, files: Mapping[str, str], now: datetime) -> bytes:
    """Return a page without scripts and with links to files only. `up`: path of the report's directory from the page."""

    def link(match: re.Match[str]) -> str:
        name = files.get(unquote(match[2].partition("?")[0]))
        return f' {match[1]}="{up}{name}"' if name is not None else ""

    html = body.decode()
    for pattern in (_SCRIPT, _LIVE, _FORM):
        html = pattern.sub("", html)
    footer = f"<footer>As of {now:%Y-%m-%d %H:%M:%S} UTC; ages, too.</footer>"
    return _FOOTER.sub(footer, _LINK.sub(link, html)).encode()


def _plain(name: str) -> str:
    plain = re.sub(r"[^a-zA-Z0-9_.-]", "_", name)
    return plain if len(plain) < 200 else f"{plain[:190]}-{zlib.crc32(name.encode()):08x}"
