"""The loop that brings one object in step: what fails is tried again, no sooner than the server says."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import KubeletxError, Unavailable
from kubeletx.kube.client import TooManyRequests
from kubeletx.kube.client.backoff import run_sync_loop, server_backoff
from kubeletx.testing import FakeClock


class Client:
    """Notes how long it was left alone."""

    problem = ""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [(Unavailable("away"), 1.0, 2.0), (TooManyRequests("busy", retry_after_seconds=50.0), 50.0, 51.0)],
)
async def test_a_failure_is_tried_again_no_sooner_than_the_server_says(
    error: KubeletxError, least: float, most: float
) -> None:
    client, news, tried = Client(), asyncio.Event(), 0
    done = asyncio.Event()

    async def sync() -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise error
        done.set()

    backoff = server_backoff(first=1.0)
    loop = run_sync_loop(news, sync, client, FakeClock(), what="Failed", backoff=backoff)  # type: ignore[arg-type]
    task = asyncio.create_task(loop)
    news.set()
    async with asyncio.timeout(30):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(client.pauses) == 1
    assert least <= client.pauses[0] <= most
