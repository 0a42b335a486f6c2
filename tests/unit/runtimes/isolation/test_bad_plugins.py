"""Bad plugins in a process of their own: the agent's call fails with words, and a new process starts after a delay."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import SupportsEvents, SupportsExec, SupportsPortForward, SupportsStats, Unavailable
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeHost, endpoint
from kubeletx_testing.bad_plugins import ends_at_start, ends_process, lacks_methods, writes_garbage


async def test_a_plugin_that_ends_at_once_is_not_started_again_at_once(tmp_path: Path) -> None:
    runtime = IsolatedRuntime(ends_at_start.make, endpoint("bad://"), None, FakeHost(tmp_path))
    with pytest.raises(Unavailable, match="the process of runtime under-test: its connection closed"):
        await runtime.open()
    for _ in range(20):
        with pytest.raises(Unavailable, match="its process ended; started again in"):
            await runtime.open()
    assert runtime.kept.starts == 1
    runtime.kept.not_before = 0.0
    with pytest.raises(Unavailable):
        await runtime.open()
    assert runtime.kept.starts == 2
    assert runtime.usage() is None
    await runtime.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ends_process.make, "its connection closed"),
        (writes_garbage.make, "it broke the protocol: a frame of "),
    ],
)
async def test_a_plugin_that_breaks_its_connection_gets_a_new_process(
    tmp_path: Path, make: object, words: str
) -> None:
    runtime = IsolatedRuntime(make, endpoint("bad://"), None, FakeHost(tmp_path))  # type: ignore[arg-type]
    await runtime.open()
    pid = runtime.pid
    with pytest.raises(Unavailable, match=f"the process of runtime under-test: {words}"):
        await runtime.version()
    with pytest.raises(Unavailable, match="started again in"):
        await runtime.open()
    runtime.kept.not_before = 0.0
    await runtime.open()
    assert runtime.pid not in (None, pid)
    usage = runtime.usage()
    assert usage is not None
    assert usage.restarts == 1
    await runtime.close()


async def test_a_capability_whose_object_lacks_methods_is_left_out_and_logged(tmp_path: Path) -> None:
    runtime = IsolatedRuntime(lacks_methods.make, endpoint("bad://"), None, FakeHost(tmp_path))
    with capture_logs() as lines:
        await runtime.open()
    assert runtime.capability(SupportsEvents) is not None
    for protocol in (SupportsStats, SupportsExec, SupportsPortForward):
        assert runtime.capability(protocol) is None
    found = {one["capability"]: one["err"] for one in lines if one["event"] == "Failed to query a capability"}
    assert found["SupportsExec"] == (
        "capability(SupportsExec) returned an object of class HalfExec, which lacks exec; add it, or "
        "return None"
    )
    assert found["SupportsPortForward"].startswith("KeyError: 'SupportsPortForward' (at ")
    assert sorted(found) == ["SupportsExec", "SupportsPortForward", "SupportsStats"]
    await runtime.close()
