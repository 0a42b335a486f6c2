"""Pod sources: a plugin decides which pods this node should run.

The agent calls `PodSource.run` in its own task, and calls it again if it raises or returns. The source passes each
manifest as a mapping to `PodSourceSink.set`. The agent decodes it, sets defaults, validates it, and returns a
`PodOutcome`.

A pod belongs to the source that set it, by namespace and name. It continues to run while the source is broken, and
after restarts of the agent. A source ends a pod in two ways: with `PodSourceSink.remove`; or it does not set the pod
again in a new run, and then calls `synced`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class PodAnswer(enum.Enum):
    """Answer of the agent to a pod that a source sets with `PodSourceSink.set`."""

    ACCEPTED = "accepted"
    """The node runs the pod as soon as possible. Admission may still reject it; the pod's status shows that."""
    WAITS = "waits"
    """A pod of another source has the same namespace and name; this one starts when the other is gone."""
    REFUSED = "refused"
    """The manifest is invalid. A pod from an earlier version of the manifest continues to run."""


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `PodSourceSink.set`. `uid`: UID of the pod; empty if it was refused.

    `waits_for`: with answer WAITS, name of the source whose pod has the same namespace and name. `field`: with
    answer REFUSED, the invalid field. `message`: one line for users: what is wrong and how to correct it.
    """

    answer: PodAnswer
    uid: str = ""
    waits_for: str = ""
    field: str = ""
    message: str = ""


class PodSourceSink(Protocol):
    """Interface through which a pod source sets and removes its pods. Call it from the event loop only."""

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Run this pod. `pod`: a v1 Pod as JSON values. Call `set` again when its manifest changes.

        The agent computes the pod's UID from the manifest, the node and the source; a UID in the manifest is
        ignored. So a changed manifest is a new pod, which starts after the earlier one has ended. Setting
        an unchanged pod again has no effect.
        """
        ...

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        """End the pod with this namespace and name. Returns False if this source has no such pod.

        `grace_seconds` None: the pod's ``terminationGracePeriodSeconds`` is used.
        """
        ...

    def synced(self) -> None:
        """Report that this run of the source has set all its current pods.

        Pods that an earlier run had set, and this run has not, are ended now.
        """
        ...


class PodSource(Protocol):
    """Source of a plugin that decides which pods this node should run."""

    async def run(self, sink: PodSourceSink) -> None:
        """Pass pods to `sink` until cancelled: set all current pods, call `synced`, then set and remove changed ones.

        Runs on the event loop: use `PluginHost.blocking` for calls that block.
        """
        ...


PodSourceFactory = Callable[[Any, PluginHost], PodSource]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the source. Must not do I/O."""
