"""Health checks: a plugin checks one thing on the node periodically and reports whether it is healthy.

The host calls `HealthCheck.check` every `period_seconds`, each time in a task of its own and under the deadline
``kubeletx.pluginHealthCheckTimeout``. The last result is shown as part ``plugin-NAME`` of ``/healthz`` and as node
condition ``kubeletx.io/Healthy-NAME``; each change from healthy to unhealthy and back is an event of the node.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Severity(enum.Enum):
    """Severity of a failed check: whether the node still works."""

    WARNING = "warning"
    """The node works; ``/healthz`` stays ok and shows the message."""
    ERROR = "error"
    """The node does not work properly; ``/healthz`` fails and the node condition becomes False."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check. `message`: one line for users; required when `ok` is False."""

    ok: bool
    severity: Severity = Severity.WARNING
    """Severity of a failed check; ignored while `ok` is True."""
    message: str = ""


class HealthCheck(Protocol):
    """Check that a plugin registers, of one thing on the node."""

    async def check(self) -> CheckResult:
        """Check now. The host does not call it again before it has returned.

        Runs on the event loop: use `PluginHost.blocking` for calls that block. After an exception or an
        expired deadline the result is unknown: the node condition becomes Unknown, and the next check is made
        as usual.
        """
        ...


HealthCheckFactory = Callable[[Any, PluginHost], HealthCheck]
"""(own settings Struct or None, host) → check. Must not do I/O."""
