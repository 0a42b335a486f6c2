"""The runtime kind ``exec``: a runtime plugin that is a program in any language, at a path of the node.

    container:perl:exec:///usr/local/libexec/wire-perl?config=/etc/wire-perl.json

The program exchanges the messages of docs/plugin-wire.md with the agent. It always runs in a process of its own. The
parameter ``config`` is for the program, which finds it in its endpoint's URL. The section ``kubeletx.plugins.exec`` of
the configuration has the settings of each runtime by its name, which the program gets as JSON values.
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from kubeletx.api import CONTAINER, VM, Endpoint, Host, InvalidConfig, Runtime

from .kinds import RuntimeKind

ProgramSettings = dict[str, dict[str, Any]]
"""Settings of programs: name of the runtime → JSON values."""


def program_of(endpoint: Endpoint) -> str:
    """Return the path of the program that serves the endpoint. Raises InvalidConfig if the URL has none."""
    parts = urlsplit(endpoint.url)
    path = unquote(parts.path)
    if parts.netloc or len(path) < 2 or "\0" in path:
        raise InvalidConfig(
            obj=endpoint.origin,
            field=f"runtime {endpoint.name}",
            problem=f"{endpoint.url!r} has no absolute path of a program",
            fix="write exec:// and the path, such as exec:///usr/local/libexec/wire-perl",
        )
    return path


def make_program_runtime(endpoint: Endpoint, settings: ProgramSettings | None, host: Host) -> Runtime:
    """Make the runtime that starts the program of the endpoint and calls it. `settings`: of all programs."""
    from ..isolation import IsolatedRuntime  # loaded only when a runtime is isolated, to save memory

    if endpoint.isolation == "none":
        raise InvalidConfig(
            obj=endpoint.origin,
            field=f"runtime {endpoint.name}",
            problem="isolation=none is not possible: the plugin is a program",
            fix="leave isolation out",
        )
    own = (settings or {}).get(endpoint.name)
    return IsolatedRuntime(None, endpoint, own, host, program=(program_of(endpoint),))


PROGRAMS: Final = RuntimeKind(
    name="exec",
    factory=make_program_runtime,
    workload_types=(CONTAINER, VM),
    schemes=("exec",),
    default_claim=True,
    parameters=("config",),
    settings=cast("type[Any]", ProgramSettings),
    plugin="kubeletx",
)
"""Registered by the agent itself, before the kinds of plugins."""
