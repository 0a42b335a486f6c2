"""`FakePodSink`: receives and keeps the pods of a pod source under test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeletx.api import InvalidPod, PodAnswer, PodOutcome
from kubeletx.kube.manifests.load import load_manifest


class FakePodSink:
    """A `PodSourceSink` that decodes each manifest as the agent does and keeps it by ``namespace/name``."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        """Messages of the manifests that were refused."""
        self.refuses: set[str] = set()
        """Names of pods to refuse although they are valid; a test adds them."""
        self.is_synced = False

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Keep the pod, or refuse it if it is invalid or named in `refuses`; the outcome tells which, with
        the reason.
        """
        manifest = json.loads(json.dumps(pod, default=dict))
        try:
            ((found, _),) = load_manifest(json.dumps(manifest).encode(), "the source under test")
            if found.name in self.refuses:
                raise InvalidPod(
                    obj="the test", field="metadata.name", problem="is refused", fix="another name"
                )
        except InvalidPod as error:
            self.refused.append(str(error))
            return PodOutcome(answer=PodAnswer.REFUSED, field=error.field, message=str(error))
        ref = f"{found.metadata.namespace or 'default'}/{found.name}"
        self.pods[ref] = manifest
        return PodOutcome(answer=PodAnswer.ACCEPTED, uid=f"uid-of-{ref}")

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        """Remove the pod. Returns False if it was not there."""
        return self.pods.pop(f"{namespace}/{name}", None) is not None

    def synced(self) -> None:
        """Set `is_synced`."""
        self.is_synced = True
