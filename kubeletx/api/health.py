"""Health checks: a plugin checks one thing on the node periodically and reports whether it is healthy.

The agent calls `HealthCheck.check` every `period_seconds`, each time in its own task with the deadline
``kubeletx.pluginHealthCheckTimeout``. The last result is shown as check ``plugin-NAME`` of ``/healthz`` and as node
condition ``kubeletx.io/Healthy-NAME``. Each change between healthy and unhealthy is recorded as an event of the node.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Severity(enum.Enum):
    """Severity of a failed health check: whether the node still works."""

    WARNING = "warning"
    """The node works; ``/healthz`` stays ok and shows the message."""
    ERROR = "error"
    """The node does not work properly; ``/healthz`` fails and the node condition becomes False."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one health check. `ok`: True if healthy. `message`: one line for users; required if `ok` is False."""

    ok: bool
    severity: Severity = Severity.WARNING
    """Severity of a failed check; ignored while `ok` is True."""
    message: str = ""


class HealthCheck(Protocol):
    """Periodic check of a plugin, which reports whether one thing on the node is healthy."""

    async def check(self) -> CheckResult:
        """Check now and return the result. The agent does not call it again before it has returned.

        Runs on the event loop: use `PluginHost.blocking` for calls that block. If it raises or misses its
        deadline, the node condition becomes Unknown; the next check is made as usual.
        """
        ...


HealthCheckFactory = Callable[[Any, PluginHost], HealthCheck]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the check. Must not do I/O."""
