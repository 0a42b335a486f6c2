"""Pod sources: a plugin decides which pods this node should run.

The host calls `PodSource.run` once, in a task of its own, and keeps it running: one that raises or returns is started
again. The source passes manifests as mappings; the host decodes them, sets defaults, validates them, and answers each
with the pod's state.

A pod belongs to the source that set it, by namespace and name. Silence removes nothing: pods that a source has set run
on while the source is broken, and over restarts of the agent. Only `PodSourceSink.remove` ends a pod, and `synced`,
which ends what an earlier run of the source had and this one did not set again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class PodAnswer(enum.Enum):
    """The three answers that a source can get when it sets a pod."""

    ACCEPTED = "accepted"
    """The node runs it as soon as possible; admission may still refuse it, which its status shows."""
    WAITS = "waits"
    """Another pod has its namespace and name; this one starts when that one is gone."""
    REFUSED = "refused"
    """The manifest is invalid. An earlier pod of this manifest runs on."""


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The host's answer to `PodSourceSink.set`. `uid`: UID of the pod; empty if it was refused.

    `waits_for`: source whose pod has the same namespace and name, if this one waits. `field`, `message`: the
    invalid field, and what is wrong with it and how to correct it.
    """

    answer: PodAnswer
    uid: str = ""
    waits_for: str = ""
    field: str = ""
    message: str = ""


class PodSourceSink(Protocol):
    """Receiver of a source's pods. All calls return quickly; call them from the event loop."""

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Run this v1 Pod, given as JSON values. Call it again with another spec when the pod changes.

        A UID in the manifest is ignored: the host computes it from the manifest, the node and the source. So
        a changed manifest is another pod, and the earlier pod ends before it starts. Setting an unchanged pod
        again has no effect.
        """
        ...

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        """End this pod. Returns False if this source has no such pod.

        `grace_seconds` None: the pod's own grace period.
        """
        ...

    def synced(self) -> None:
        """Report that every pod that the source has at present was set.

        Pods that an earlier run of the source had set, and this one has not, are ended now.
        """
        ...


class PodSource(Protocol):
    """Source of pods that a plugin registers."""

    async def run(self, sink: PodSourceSink) -> None:
        """Pass pods to the sink until cancelled: set all pods, call `synced`, then follow changes.

        Runs on the event loop: use `PluginHost.blocking` for calls that block.
        """
        ...


PodSourceFactory = Callable[[Any, PluginHost], PodSource]
"""(own settings Struct or None, host) → source. Must not do I/O."""
