"""Renewals that nobody answers: connections are made anew as long as that lasts."""

from __future__ import annotations

import pytest

from kubeletx.api import Conflict, KubeletxError, TimedOut
from kubeletx.apiserver.lease import SILENT_RENEWALS, NodeLease
from kubeletx.testing import FakeClock


class Client:
    """Counts."""

    def __init__(self) -> None:
        self.reconnects = 0

    async def reconnect(self) -> None:
        self.reconnects += 1


async def test_connections_are_made_anew_after_every_two_silences_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    lease = NodeLease(client, "one", clock=FakeClock(), duration_seconds=40)  # type: ignore[arg-type]
    error: KubeletxError = TimedOut("silent")

    async def renew() -> None:
        raise error

    monkeypatch.setattr(lease, "renew", renew)

    async def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(type(error)):
                await lease._renew_within(10)

    await fail(2 * SILENT_RENEWALS)
    assert client.reconnects == 2
    await fail(1)
    error = Conflict("somebody else's")
    await fail(1)
    error = TimedOut("silent")
    await fail(SILENT_RENEWALS - 1)
    assert client.reconnects == 2, "an answer came between"
    await fail(1)
    assert client.reconnects == 3
