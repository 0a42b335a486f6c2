"""`write_report`: the pages as files that a browser shows without a server, from one reading of the agent.

    DIR/index.html, ui.css, pods/NAMESPACE_NAME.html and .yaml, pictures of machines and panels

They have no scripts and no live parts. Links between them are relative, and links that need a server are removed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from kubeletx.api import KubeletxError
from kubeletx.kube.types.core import Pod

from .agent import Agent, pod_path
from .node_page import NodePage, Query, node_document
from .pod_log import LogTail, log_tail
from .pod_page import PodPage, pod_yaml
from .state import Feed, NodeState
from .templates import render
from .values import History, picture_of

PODS_SECONDS: Final = 20.0
"""Longest time for logs, histories and pictures of all pods together; ``kubeletx report`` waits 60 s for the whole."""
PARALLEL: Final = 8
"""Pods that are read at the same time."""
_SCRIPT: Final = re.compile(r"<script [^>]*></script>")
_ATTRIBUTE: Final = re.compile(r' (href|src|data-follow)="((?:/|\?)[^"]*)"')
_FOOTER: Final = re.compile(r"<footer.*?</footer>", re.DOTALL)
_PLAIN: Final = re.compile(r"[^\w.-]")


async def write_report(
    agent: Agent, directory: Path, now: Callable[[], datetime], *, pods_seconds: float = PODS_SECONDS
) -> int:
    """Write all pages below the directory, which is made; returns the number of files. `pods_seconds`: see `PODS_SECONDS`.

    Raises KubeletxError if the agent does not answer, OSError if a file cannot be written.
    """
    feed = Feed(agent)
    try:
        async with feed.viewing() as state:
            await feed.settle()
            return await _Report(agent, state, directory, now, pods_seconds).write()
    finally:
        await feed.close()


class _Report:
    def __init__(
        self,
        agent: Agent,
        state: NodeState,
        directory: Path,
        now: Callable[[], datetime],
        pods_seconds: float,
    ) -> None:
        self._agent = agent
        self._state = state
        self._directory = directory
        self._now = now
        self._written = 0
        self._end = asyncio.get_running_loop().time() + pods_seconds

    async def write(self) -> int:
        state, slots = self._state, asyncio.Semaphore(PARALLEL)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        css = (files("kubeletx_web") / "static" / "ui.css").read_bytes()
        self._put("ui.css", css + b"\nform { display: none; }\n")
        targets = {"/static/ui.css": "ui.css"}
        for path, content in state.others.items():
            if (picture := picture_of(content)) is not None:
                name = path.removeprefix("/v1")
                targets[f"{name}.png"] = f"panels/{_plain(unquote(name.rpartition('/')[2]))}.png"
                self._put(targets[f"{name}.png"], picture)
        pods = list(state.pods.values())

        async def screen(pod: Pod) -> None:
            if pod.status.virtual_machine_status is not None:
                async with slots:
                    # A machine that is off has no picture.
                    with suppress(KubeletxError, TimeoutError):
                        async with asyncio.timeout_at(self._end):
                            picture = await self._agent.read(
                                pod_path(pod.namespace, pod.name, "vm/screenshot")
                            )
                        targets[f"/pods/{pod.ref}/screen.png"] = f"{_stem(pod)}.png"
                        self._put(f"{_stem(pod)}.png", picture)

        async def page(pod: Pod) -> None:
            async with slots:
                self._put_page(f"{_stem(pod)}.html", await self._pod(pod), targets, "../")

        await asyncio.gather(*map(screen, pods))
        for pod in pods:
            targets[f"/pods/{pod.ref}"] = f"{_stem(pod)}.html"
            targets[f"/pods/{pod.ref}/yaml"] = f"{_stem(pod)}.yaml"
            self._put(f"{_stem(pod)}.yaml", pod_yaml(pod).encode())
        targets["/"] = "index.html"
        await asyncio.gather(*map(page, pods))
        query = Query()
        html = node_document(state, NodePage(state, query, self._now).fragments(), query, live="")
        self._put_page("index.html", html, targets, "")
        return self._written

    async def _pod(self, pod: Pod) -> str:
        path = pod_path(pod.namespace, pod.name, "history")
        page = PodPage(
            self._state, pod.namespace, pod.name, self._now, lambda: self._agent.get(path, History)
        )
        log = LogTail("", (), previous=False, note="The agent did not answer in time.")
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._end):
                await page.prepare()
                log = await log_tail(self._agent, pod, "", previous=False)
        parts, path = page.fragments().parts, f"/pods/{pod.ref}"
        return render("pod", namespace=pod.namespace, name=pod.name, parts=parts, log=log, path=path, live="")

    def _put_page(self, name: str, html: str, targets: Mapping[str, str], prefix: str) -> None:
        footer = f"<footer>As of {self._now():%Y-%m-%d %H:%M:%S} UTC; ages, too.</footer>"
        self._put(name, _FOOTER.sub(footer, local(html, targets, prefix)).encode())

    def _put(self, name: str, content: bytes) -> None:
        path = self._directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self._written += 1


def local(html: str, targets: Mapping[str, str], prefix: str) -> str:
    """Return a page without scripts and with links to files. `targets`: file by path; a link to another path is removed.

    `prefix`: beginning of each link to a file.
    """

    def link(match: re.Match[str]) -> str:
        target = targets.get(unquote(match[2].partition("?")[0]))
        return f' {match[1]}="{prefix}{target}"' if target is not None else ""

    return _ATTRIBUTE.sub(link, _SCRIPT.sub("", html))


def _stem(pod: Pod) -> str:
    return f"pods/{_plain(pod.namespace)}_{_plain(pod.name)}"


def _plain(name: str) -> str:
    return _PLAIN.sub("_", name)
