"""The example application and the sample of docs/sessions.md, as processes of their own that have only the SDK."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubeletx_session import Settings
from kubeletx_session.stubs import session_service_pb2 as pb

from kubeletx_testing.waiting import until

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sessions.md").read_text()


@asynccontextmanager
async def running(service: Any, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Python with the environment of an instance; afterwards it ends by SIGTERM, with exit code 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "KUBELETX_SESSION_DIRECTORY": str(service.directory),
            "KUBELETX_SESSION_SERVICE": service.address,
            "KUBELETX_POD_ID": "default/web",
            "PORT": "0",
            "HEARTBEAT": "0.1",
        },
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_sample_of_the_page_serves_sessions(service: Any) -> None:
    (sample,) = re.findall(r"<!-- application -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    async with running(service, "-c", sample):
        await service.open("default/ann", b"chess")
        await service.reported("default/ann", pb.STATE_OPEN)
        await service.close("default/ann")
        await service.reported("default/ann", pb.STATE_CLOSED)
        await service.open("default/bob")
        await service.reported("default/bob", pb.STATE_OPEN)
    assert service.states("default/bob")[-1] == pb.STATE_CLOSED


async def test_the_example_counts_visits_of_each_session(service: Any) -> None:
    async with running(service, str(ROOT / "examples" / "sessions" / "counters.py")) as process:
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[-1])
        await service.open("default/ann", b"41")
        await service.open("default/bob")
        for id in ("default/ann", "default/bob"):
            await service.reported(id, pb.STATE_OPEN)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def get(path: str) -> tuple[int, str]:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.findall(r"Content-Length: (\d+)", head)[0])
            return int(head.split()[1]), (await reader.readexactly(length)).decode().strip()

        assert [await get("/ann"), await get("/ann")] == [(200, "42"), (200, "43")]
        await service.reports("default/ann", lambda report: report.sessionStatus.clientSession)
        assert await get("/bob") == (200, "1")
        assert await get("/nobody") == (404, "no such session")
        assert await get("/") == (200, "ann\nbob")
        writer.close()
        await until(lambda: _present(service.of("default/bob")[-1]) == [])
        await service.open("default/bad", b"no number")
        await service.reported("default/bad", pb.STATE_CLOSED)
        await service.close("default/bob")
        await service.reported("default/bob", pb.STATE_CLOSED)
    assert service.states("default/ann")[-1] == pb.STATE_CLOSED


def _present(report: pb.SessionMessage) -> list[str]:
    clients = report.sessionStatus.clientSession
    return [client.clientIdentifier for client in clients if not client.HasField("timeExit")]


def test_the_page_names_the_defaults_of_the_settings(tmp_path: Path) -> None:
    ours = Settings(directory=tmp_path)
    for text in (
        f"random pauses of at most {ours.longest_pause_seconds:g} s",
        f"Every {ours.heartbeat_seconds:g} s each session",
        f"within {ours.shutdown_seconds:g} s (`Settings.shutdown_seconds`)",
        f"(`Settings.most_sessions`) | {ours.most_sessions:,};",
    ):
        assert text in PAGE
