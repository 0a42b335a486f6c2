"""Admission checks: a plugin decides whether a pod may run on this node, in addition to the node's own rules.

The agent calls `AdmissionCheck.review` once for each new pod, before the pod is assigned to a runtime and before its
directories, sandbox or containers are created. Each call runs in its own task with the deadline
``kubeletx.pluginAdmissionCheckTimeout``. If any check refuses the pod, that is final: the pod becomes Failed with the
check's reason and message. A pod that already runs is not reviewed again, even after a restart of the agent.

If a check raises or misses its deadline, the pod waits with reason ``AdmissionCheckFailed`` and is reviewed again
later. With ``fails_open=True`` at registration the pod is admitted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Allow(msgspec.Struct, frozen=True, tag=True):
    """Result of a review: the check permits the pod."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Result of a review: the check refuses the pod, which becomes Failed and never runs on this node.

    `reason`: one CamelCase word for the pod's status. `message`: one line that says what to change.
    """

    reason: str
    message: str


class AdmissionCheck(Protocol):
    """Check of a plugin that decides which new pods may run on this node."""

    async def review(self, pod: Mapping[str, Any]) -> Allow | Refuse:
        """Decide about one pod. Several pods may be reviewed at the same time.

        `pod`: a v1 Pod as JSON values, with its defaults, UID and namespace. Each call gets its own copy, so
        changing it has no effect. Environment values may be secret. Runs on the event loop: use
        `PluginHost.blocking` for calls that block.
        """
        ...


AdmissionCheckFactory = Callable[[Any, PluginHost], AdmissionCheck]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the check. Must not do I/O."""
