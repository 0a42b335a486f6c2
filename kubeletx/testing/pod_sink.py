"""`FakePodSink`: receives the pods of a pod source under test and keeps them for the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeletx.api import InvalidPod, PodAnswer, PodOutcome
from kubeletx.kube.manifests.load import load_manifest


class FakePodSink:
    """Implements `kubeletx.api.PodSourceSink`. It decodes manifests as the agent does and keeps them in `pods`.

    `pods`: the manifests by ``namespace/name``. `is_synced`: True once the source has called `synced`.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        """Messages of the manifests that were refused."""
        self.refuses: set[str] = set()
        """Names of pods to refuse although they are valid; a test adds them."""
        self.is_synced = False

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Keep the pod's manifest in `pods`, and return the outcome ACCEPTED.

        Returns REFUSED, with a message, if the manifest is invalid or the pod's name is in `refuses`.
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
        """Remove the pod from `pods`. Returns False if it does not exist."""
        return self.pods.pop(f"{namespace}/{name}", None) is not None

    def synced(self) -> None:
        """Set `is_synced`. A pod source calls this once it has passed all its current pods to `set`."""
        self.is_synced = True
