"""A plugin for the benchmarks: runtimes in memory, over one backend that outlives the agent's restart."""

from __future__ import annotations

from typing import Any

from kubeletx.api import Endpoint, Host, hookimpl
from kubeletx.testing import FakeBackend, FakeRuntime

backends: dict[str, FakeBackend] = {}
"""By the endpoint's URL; made at the first use."""


def make_runtime(endpoint: Endpoint, _settings: Any, host: Host) -> FakeRuntime:
    """A runtime over the backend of its URL."""
    backend = backends.get(endpoint.url)
    if backend is None:
        backend = backends[endpoint.url] = FakeBackend(clock=host.clock, keep_specs=False)
    return FakeRuntime(endpoint.name, clock=host.clock, backend=backend)


@hookimpl
def kubeletx_register_runtimes(register: Any) -> None:
    """Register kind ``fake``."""
    register("fake", make_runtime, workload_types=("container",), schemes=("fake",), default_claim=True)
