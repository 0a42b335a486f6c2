"""Plugin for the benchmarks: runtimes in memory, whose state survives a restart of the agent in the same process."""

from __future__ import annotations

from typing import Any

from kubeletx.api import Endpoint, Host, hookimpl
from kubeletx.testing import FakeBackend, FakeRuntime

backends: dict[str, FakeBackend] = {}
"""By the endpoint's URL; made at the first use."""


def make_runtime(endpoint: Endpoint, _settings: Any, host: Host) -> FakeRuntime:
    """Make a runtime on the backend of the endpoint's URL, which is made at the first use."""
    backend = backends.get(endpoint.url)
    if backend is None:
        backend = backends[endpoint.url] = FakeBackend(clock=host.clock, keep_specs=False)
    return FakeRuntime(endpoint.name, clock=host.clock, backend=backend)


@hookimpl
def kubeletx_register_runtimes(register: Any) -> None:
    """Register the runtime kind ``fake``."""
    register("fake", make_runtime, workload_types=("container",), schemes=("fake",), default_claim=True)
