"""Callers of a volume's mounts."""

from __future__ import annotations

from kubeletx_flexvolume.agent.callers import ABANDONED_SECONDS, MountCallers

from kubeletx.api import Unavailable
from plugins.flexvolume.tests.agent.agent_model import holder, request

KEY = holder().key


def test_a_use_is_abandoned_some_time_after_its_last_caller() -> None:
    callers = MountCallers()
    callers.begin(KEY)
    callers.begin(KEY)
    callers.end(KEY, 10.0)
    assert callers.awaited == {KEY}
    assert callers.without_caller() == []
    callers.end(KEY, 20.0)
    assert callers.awaited == set()
    assert callers.next_due == 20.0 + ABANDONED_SECONDS
    assert not callers.is_due(KEY, 19.0 + ABANDONED_SECONDS)
    assert callers.is_due(KEY, 20.0 + ABANDONED_SECONDS)


def test_a_new_caller_ends_the_abandonment() -> None:
    callers = MountCallers()
    callers.begin(KEY)
    callers.end(KEY, 0.0)
    callers.begin(KEY)
    assert not callers.is_due(KEY, 1e9)
    assert callers.next_due is None


def test_requests_are_dropped_when_a_use_is_settled_or_has_failed() -> None:
    callers = MountCallers()
    callers.want(KEY, request())
    assert callers.request(KEY) is not None
    callers.fail(KEY, Unavailable("x"))
    assert callers.request(KEY) is None
    callers.want(KEY, request())
    assert callers.failure(KEY) is None
    callers.settle(KEY)
    assert callers.request(KEY) is None
    assert callers.request(None) is None
