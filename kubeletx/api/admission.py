"""Admission checks: a plugin decides whether a pod may run on this node, in addition to the node's own rules.

The host calls `AdmissionCheck.review` once for each new pod, before the pod is bound to a runtime and before anything
of it is made, in a task of its own and under the deadline ``kubeletx.pluginAdmissionCheckTimeout``. The first refusal
is final: the pod becomes Failed with the check's reason and message. A pod that runs already, from before a restart
of the agent too, is not asked again.

A check that raises or misses its deadline decides nothing: the pod waits with reason ``AdmissionCheckFailed`` and is
reviewed again, unless the check was registered with ``fails_open=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Allow(msgspec.Struct, frozen=True):
    """The check permits the pod."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The pod never runs here. `reason`: one CamelCase word; `message`: one line with what to change."""

    reason: str
    message: str


class AdmissionCheck(Protocol):
    """Reviews pods."""

    async def review(self, pod: Mapping[str, Any]) -> Allow | Refuse:
        """Decide about one pod. Several pods may be reviewed at once.

        `pod`: a v1 Pod as JSON has it, with its defaults, UID and namespace; a copy of its own for each call, so a
        change of it has no effect. Environment values may be secret. Runs on the event loop: use
        `PluginHost.blocking` for calls that block.
        """
        ...


AdmissionCheckFactory = Callable[[Any, PluginHost], AdmissionCheck]
"""(own settings Struct or None, host) → check. Must not do I/O."""
