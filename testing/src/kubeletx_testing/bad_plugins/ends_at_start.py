"""A plugin whose factory ends the process, so that its process ends right after each start.

Fault: the factory ends the process, for example since a library that it loads does so.
What the agent does: the plugin's own process ends, the runtime is NotReady with the reason, and the process is started
again after a delay of 1 second, which doubles up to 60 seconds.
Correct code does no work in the factory, and raises an error in `open`.
"""

from __future__ import annotations

import os

from kubeletx.api import Endpoint, Host, RegisterRuntime, hookimpl
from kubeletx.testing import FakeRuntime

EXIT_CODE = 3


def make(_endpoint: Endpoint, _settings: object, _host: Host) -> FakeRuntime:
    """End the process with `EXIT_CODE`."""
    os._exit(EXIT_CODE)  # the fault


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``ends-at-start``."""
    register("ends-at-start", make, workload_types=("container",), schemes=("bad",))
