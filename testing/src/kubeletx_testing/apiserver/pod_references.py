"""Objects that a pod refers to. The Node authorizer and the admission of pods use them.

Source: kubernetes, pkg/api/v1/pod/util.go VisitPodSecretNames and VisitPodConfigmapNames;
plugin/pkg/auth/authorizer/node/graph.go AddPod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import Json


def pod_references(pod: Json, namespace: str) -> Iterator[tuple[str, str, str]]:
    """Yield (resource, namespace, name) of every object that a pod names.

    These are its service account, secrets, config maps and volume claims. `namespace`: the pod's namespace,
    which each tuple contains.
    """
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", namespace, spec["serviceAccountName"]
    for secret in spec.get("imagePullSecrets", []):
        yield "secrets", namespace, secret.get("name", "")
    for container in _all_containers(spec):
        for source in container.get("envFrom", []):
            yield from _named(namespace, source, "secretRef", "configMapRef")
        for variable in container.get("env", []):
            yield from _named(namespace, variable.get("valueFrom") or {}, "secretKeyRef", "configMapKeyRef")
    for volume in spec.get("volumes", []):
        yield from _of_volume(namespace, volume)
    for claim in claims(pod):
        yield "persistentvolumeclaims", namespace, claim


def _all_containers(spec: Json) -> list[Json]:
    return [
        *spec.get("initContainers", []),
        *spec.get("containers", []),
        *spec.get("ephemeralContainers", []),
    ]


def _named(namespace: str, source: Json, secret: str, config_map: str) -> Iterator[tuple[str, str, str]]:
    if reference := source.get(secret):
        yield "secrets", namespace, reference.get("name", "")
    if reference := source.get(config_map):
        yield "configmaps", namespace, reference.get("name", "")


def _of_volume(namespace: str, volume: Json) -> Iterator[tuple[str, str, str]]:
    parts: list[Any] = [volume, *(volume.get("projected") or {}).get("sources", [])]
    for part in parts:
        if reference := part.get("secret"):
            yield "secrets", namespace, reference.get("secretName") or reference.get("name", "")
        if reference := part.get("configMap"):
            yield "configmaps", namespace, reference.get("name", "")
    for kind in volume.values():
        for field in ("secretRef", "nodePublishSecretRef"):
            if isinstance(kind, dict) and kind.get(field):
                yield "secrets", namespace, kind[field].get("name", "")


def claims(pod: Json) -> Iterator[str]:
    """Yield the names of a pod's PersistentVolumeClaims, including those of generic ephemeral volumes."""
    for volume in pod["spec"].get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            yield claim.get("claimName", "")
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}"
