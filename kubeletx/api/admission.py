"""Admission checks: a plugin decides whether a pod may run on this node, in addition to the node's own rules.

The host calls `AdmissionCheck.review` once for each new pod, before the pod is bound to a runtime and before anything
of it is made, in a task of its own and under the deadline ``kubeletx.pluginAdmissionCheckTimeout``. The first refusal
of any check is final: the pod becomes Failed with the check's reason and message. A pod that runs already is not
reviewed again, not even after a restart of the agent.

A check that raises or misses its deadline decides nothing: the pod waits with reason ``AdmissionCheckFailed`` and is
reviewed again, unless the check was registered with ``fails_open=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Allow(msgspec.Struct, frozen=True):
    """Result of a review: the check permits the pod."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a review: the pod never runs on this node.

    `reason`: one CamelCase word. `message`: one line that says what to change.
    """

    reason: str
    message: str


class AdmissionCheck(Protocol):
    """Check that a plugin registers, to decide which new pods may run on this node."""

    async def review(self, pod: Mapping[str, Any]) -> Allow | Refuse:
        """Decide about one pod. Several pods may be reviewed at the same time.

        `pod`: a v1 Pod as JSON values, with its defaults, UID and namespace. Each call gets its own copy, so
        changing it has no effect. Environment values may be secret. Runs on the event loop: use
        `PluginHost.blocking` for calls that block.
        """
        ...


AdmissionCheckFactory = Callable[[Any, PluginHost], AdmissionCheck]
"""(own settings Struct or None, host) → check. Must not do I/O."""
