"""Benchmark of the web page: what it costs the agent and its own process, how fast it is, how large it is.

Usage of a real agent with idle pods; 500 pods and a change of one are shown by a fake agent, so that only the page is
measured. Shares of a core are above the agent's own at rest.
"""

from __future__ import annotations

import gzip
import http.client
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.browser import PrivatePage, chromium
from plugins.web.tests.fake_agent import FakeAgent, pod

from .idle import SETTLE_SECONDS, cpu_during, cpu_seconds, resident_mib
from .lab import BenchLab, wait_ready, wait_running
from .model import Result, Sizes, figure, now

WATCHERS: Final = 20
MOST_PODS: Final = 500


def web(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the page of an agent with idle pods."""
    names = [f"web-{number}" for number in range(sizes.idle_pods)]
    agent = bench.agent()
    with agent, bench.containerd.cri() as cri, tempfile.TemporaryDirectory() as directory:
        wait_ready(agent)
        bench.put_pods(names)
        wait_running(cri, names, pause_seconds=0.5)
        time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
        memory_before = resident_mib(agent.pid)
        at_rest = _share(agent.pid, sizes.idle_seconds)
        firsts = []
        for _ in range(sizes.runs):
            with PrivatePage(agent.socket_path, Path(directory)) as page:
                firsts.append(_Client(page).first_ms)
        with PrivatePage(agent.socket_path, Path(directory)) as page:
            client = _Client(page)
            size = sum(client.wire_bytes(path) for path in client.files())
            with client.watching(1):
                one = _share(agent.pid, sizes.idle_seconds) - at_rest
                memory = resident_mib(page.daemon.pid)
            with client.watching(WATCHERS):
                began = time.monotonic()
                own_before = cpu_seconds(page.daemon.pid)
                many = _share(agent.pid, sizes.idle_seconds) - at_rest
                own = 100 * (cpu_seconds(page.daemon.pid) - own_before) / (time.monotonic() - began)
                memory_many = resident_mib(page.daemon.pid)
        memory_after = resident_mib(agent.pid)
        bench.remove_pods(agent)
    shown, change = _with_fake_agent(sizes)
    count = f"{sizes.idle_pods} pods"
    return Result(
        name="web",
        figures=(
            figure(f"web page: first page of a new process, {count}", "ms", firsts, at_most=100, digits=1),
            figure("web page: first page with scripts, over the wire", "KB", size / 1000, at_most=150, digits=1),
            figure(f"web page open, {count}: agent, above rest", "% of a core", one, at_most=1, digits=2),
            figure(f"web page, {count}: memory of its process", "MiB", memory, at_most=40, digits=1),
            figure(
                f"web page, {WATCHERS} watchers, {count}: agent above rest, and page", "% of a core", many + own,
                at_most=5, digits=2,
            ),
            figure(f"web page, {WATCHERS} watchers, {count}: memory of its process", "MiB", memory_many, digits=1),
            figure(f"web page, {MOST_PODS} pods: shown in Chromium", "ms", shown, at_most=300, digits=1),
            figure("web page: a change arrives at a browser", "ms", change, at_most=1000, digits=1),
            figure("web page closed: memory of the agent, above before", "MiB", memory_after - memory_before, digits=1),
        ),
        notes=(f"the agent at rest: {at_rest:.2f} % of a core",),
        measured_at=now(),
    )  # fmt: skip


def _share(pid: int, seconds: float) -> float:
    cpu, passed = cpu_during(pid, seconds)
    return 100 * cpu / passed


class _Client:
    """A browser's requests, without a browser. `first_ms`: milliseconds of the first page, with its redirection."""

    def __init__(self, page: PrivatePage) -> None:
        self._cookie = ""
        self._address = page.url.removeprefix("http://").rstrip("/")
        began = time.perf_counter()
        answer, _ = self._get("/?" + page.link.partition("?")[2])
        self._cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        _, self._page = self._get("/")
        self.first_ms = (time.perf_counter() - began) * 1000

    def _get(self, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(
                "GET", path, headers={"Cookie": self._cookie, "Accept-Encoding": "gzip", **headers}
            )
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def files(self) -> Sequence[str]:
        """Paths of the page and of all that it loads."""
        text = gzip.decompress(self._page).decode()
        return [
            "/",
            *(part.partition('"')[0] for part in text.split('="')[1:] if part.startswith("/static/")),
        ]

    def wire_bytes(self, path: str) -> int:
        """Bytes of the answer's body as they are sent."""
        return len(self._get(path)[1])

    def open_stream(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Begin to watch the page."""
        text = gzip.decompress(self._get("/")[1]).decode()
        path = text.partition('sse-connect="')[2].partition('"')[0].replace("&amp;", "&")
        connection = http.client.HTTPConnection(self._address, timeout=60)
        connection.request("GET", path, headers={"Cookie": self._cookie})
        return connection, connection.getresponse()

    @contextmanager
    def watching(self, count: int) -> Iterator[None]:
        """Have `count` browsers that watch the page and load it again when it has changed."""
        streams = [self.open_stream() for _ in range(count)]
        threads = [threading.Thread(target=self._follow, args=(stream,)) for _, stream in streams]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for connection, _ in streams:
                if connection.sock is not None:
                    connection.sock.shutdown(2)
            for thread in threads:
                thread.join()
            for connection, _ in streams:
                connection.close()

    def _follow(self, stream: http.client.HTTPResponse) -> None:
        try:
            while line := stream.readline():
                if line == b"event: change\n":
                    self._get("/", **{"HX-Request": "true"})
        except (OSError, http.client.HTTPException):
            return


def _with_fake_agent(sizes: Sizes) -> tuple[list[float], list[float]]:
    """Milliseconds until Chromium has the page of many pods, and until a watcher gets a change."""
    shown, changes = [], []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        agent = FakeAgent()
        agent.answers["/v1/pods"] = {"items": [pod(f"pod-{number:03}") for number in range(MOST_PODS)]}
        call = stack.enter_context(agent.in_thread(directory / "agent.sock"))
        page = stack.enter_context(PrivatePage(directory / "agent.sock", directory))
        browser = stack.enter_context(chromium(directory / "chromium"))
        browser.driver.get(page.link)
        for _ in range(sizes.single_runs):
            browser.driver.get(page.url)
            shown.append(
                browser.script(
                    "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
                )
            )
        browser.until(lambda: browser.texts("#connection") == ["Live."], "connection")
        for number in range(sizes.single_runs):
            name = f"added-{number}"
            began = time.perf_counter()
            call(agent.send("/v1/pods", "ADDED", pod(name)))
            browser.find(f"//a[contains(., '{name}')]")
            changes.append((time.perf_counter() - began) * 1000)
    return shown, changes
