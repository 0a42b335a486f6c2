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
    """Answer to a source about a pod it has set."""

    ACCEPTED = "accepted"
    """The node runs it as soon as possible; admission may still refuse it, which its status shows."""
    WAITS = "waits"
    """Another pod has its namespace and name; this one starts when that one is gone."""
    REFUSED = "refused"
    """The manifest is invalid. An earlier pod of this manifest runs on."""


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The host's answer. `uid`: of the pod; empty if it was refused.

    `waits_for`: the source whose pod has the name; `field`, `message`: the invalid field, what is wrong and how to
    correct it.
    """

    answer: PodAnswer
    uid: str = ""
    waits_for: str = ""
    field: str = ""
    message: str = ""


class PodSourceSink(Protocol):
    """Receiver of a source's pods. All calls are quick and made from the event loop."""

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Run this v1 Pod, given with JSON's values; call again with another spec when it changes.

        A UID in the manifest is ignored: it is computed from the manifest, the node and the source, so a changed
        manifest is another pod, and the earlier one ends first. Setting an unchanged pod again has no effect.
        """
        ...

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        """Stop running this pod. `grace_seconds` None: the pod's own. False: this source has no such pod."""
        ...

    def synced(self) -> None:
        """Report that everything that the source has at present was set.

        Pods of an earlier run of the source that were not set again are ended now.
        """
        ...


class PodSource(Protocol):
    """Feeds pods to the node."""

    async def run(self, sink: PodSourceSink) -> None:
        """Feed the sink until cancelled: set everything, report `synced`, then follow changes.

        Runs on the event loop: use `PluginHost.blocking` for calls that block.
        """
        ...


PodSourceFactory = Callable[[Any, PluginHost], PodSource]
"""(own settings Struct or None, host) → source. Must not do I/O."""
