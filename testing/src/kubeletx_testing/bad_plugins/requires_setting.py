"""A plugin with a setting that has no default, so that it cannot run until an operator writes it.

Fault: the plugin is installed before its section is in the configuration.
What the agent does: the plugin is failed, and its runtimes are NotReady, with a reason that names the field and the
section to write; the agent and all other plugins start.
Correct code gives each setting a default, or raises an error in `open` that says what to write.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import Endpoint, Host, RegisterRuntime, hookimpl
from kubeletx.testing import FakeRuntime


class RequiredSettings(msgspec.Struct, rename="camel", kw_only=True):
    """Section ``kubeletx.plugins.requires-setting``. `server_url`: has no default, which is the fault."""

    server_url: str


def make(endpoint: Endpoint, _settings: RequiredSettings, _host: Host) -> FakeRuntime:
    """Make the runtime of an endpoint."""
    return FakeRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``requires-setting``."""
    register(
        "requires-setting", make, workload_types=("container",), schemes=("bad",), settings=RequiredSettings
    )
