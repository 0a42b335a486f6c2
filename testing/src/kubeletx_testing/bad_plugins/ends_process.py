"""A runtime that ends its process: it calls ``os._exit`` in a method, as a crash of a C library does.

Fault: code that ends the whole process (``os._exit``, a segmentation fault in an extension module).
What the agent does: a plugin that runs in a process of its own ends that process only. Calls that wait for an answer
fail with Unavailable, and the process is started again after a delay, which grows while processes end early.
Correct code raises an error; a library that may crash belongs in a plugin with ``isolation=process``.
"""

from __future__ import annotations

import os

from kubeletx.api import Endpoint, Host, RegisterRuntime, RuntimeVersion, hookimpl
from kubeletx.testing import FakeRuntime

EXIT_CODE = 3


class ProcessEndingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `version` ends the process."""

    async def version(self) -> RuntimeVersion:
        """End the process with `EXIT_CODE`."""
        os._exit(EXIT_CODE)  # the fault


def make(endpoint: Endpoint, _settings: object, _host: Host) -> ProcessEndingRuntime:
    """Make the runtime of an endpoint."""
    return ProcessEndingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``ends-process``."""
    register("ends-process", make, workload_types=("container",), schemes=("bad",))
