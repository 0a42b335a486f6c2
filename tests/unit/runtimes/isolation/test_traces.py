"""Traces of runtimes in a process of their own."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kubeletx.cri.tracing import CURRENT_SPAN, CurrentSpan
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeHost, endpoint


async def test_a_call_of_a_traced_start_has_its_span_in_the_other_process(tmp_path: Path) -> None:
    runtime = IsolatedRuntime(
        importlib.import_module("tests.unit.runtimes.isolation.isolated_fake").make,
        endpoint("fake://"),
        None,
        FakeHost(tmp_path),
    )
    await runtime.open()
    assert (await runtime.version()).name == "no span"

    async def call(_: str, start: Callable[[], Awaitable[Any]]) -> Any:
        return await start()

    token = CURRENT_SPAN.set(CurrentSpan(call=call, traceparent="00-1-2-01"))
    try:
        assert (await runtime.version()).name == "00-1-2-01"
    finally:
        CURRENT_SPAN.reset(token)
    assert (await runtime.version()).name == "no span"
    await runtime.close()
