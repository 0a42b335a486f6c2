"""The mailbox collects changes of one object in one report."""

from __future__ import annotations

from kubeletx.fornax.mailbox import SOON_SECONDS, Mailbox, NodeChange
from kubeletx.testing import FakeClock

POD, SESSION = NodeChange("pod", "ns/p"), NodeChange("session", "ns/s")


async def test_a_change_for_which_no_core_waits_is_reported_with_the_next_one() -> None:
    clock = FakeClock()
    mailbox = Mailbox(clock)
    mailbox.session("ns/s", soon=True)
    mailbox.pod("ns/p")
    mailbox.session("ns/s")
    assert [await mailbox.next_change() for _ in range(2)] == [POD, SESSION]
    mailbox.session("ns/s", soon=True)
    mailbox.session("ns/s", soon=True)
    clock.advance(SOON_SECONDS)
    assert await mailbox.next_change() == SESSION
    mailbox.pod("ns/p")
    assert await mailbox.next_change() == POD
