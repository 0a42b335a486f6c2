"""Finds references that a static pod may not have: to objects that only an API server provides.

Static pods start without an API server, so a reference to a secret, config map, claim or service account could never be
resolved and is refused. emptyDir, hostPath, image, nfs, iscsi, fc and downwardAPI volumes need no API server. Source:
kubelet, PreventStaticPodAPIReferences, pkg/api/pod/util.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubeletx.api import InvalidPod

from ..types.container import Container
from ..types.core import Pod
from ..types.meta import json_name
from ..types.volumes import Volume
from .load import describe

_FIX: Final = "a static pod has no API server to ask: use a file of the node (hostPath) or a literal value"
_SOURCES: Final = {
    "secret": "a secret",
    "config_map": "a config map",
    "persistent_volume_claim": "a claim",
    "ephemeral": "a claim",
    "csi": "a CSI driver's attachment",
    "azure_file": "a secret",
    "glusterfs": "endpoints",
}
_PROJECTIONS: Final = {
    "secret": "a secret",
    "config_map": "a config map",
    "service_account_token": "a service account token",
    "cluster_trust_bundle": "a trust bundle",
    "pod_certificate": "a pod certificate",
}


def refused_references(pod: Pod, origin: str) -> tuple[InvalidPod, ...]:
    """Return one problem for each reference to an object of the API server; empty if the pod has none.

    Scheduling gates are a problem, too, since only an API server can remove them, and ephemeral containers, since only
    an API server can add them. `origin`: file or URL of
    the pod, named in each problem.
    """
    obj = describe(origin, pod.metadata.name)
    refused = [
        InvalidPod(obj=obj, field=field, problem=f"refers to {what}", fix=_FIX)
        for field, what in _references(pod)
    ]
    if pod.spec.ephemeral_containers:
        problem = "can only be added to a pod that exists"
        refused.append(
            InvalidPod(obj=obj, field="spec.ephemeralContainers", problem=problem, fix="remove them")
        )
    if pod.spec.scheduling_gates:
        problem = "hold the pod back until somebody removes them in the API server"
        refused.append(InvalidPod(obj=obj, field="spec.schedulingGates", problem=problem, fix="remove them"))
    return tuple(refused)


def _references(pod: Pod) -> Iterator[tuple[str, str]]:
    spec = pod.spec
    if spec.service_account_name or spec.service_account:
        name = spec.service_account_name or spec.service_account
        yield "spec.serviceAccountName", f"the service account {name!r}"
    for index, secret in enumerate(spec.image_pull_secrets):
        yield f"spec.imagePullSecrets[{index}]", f"the secret {secret.name!r}"
    for index, claim in enumerate(spec.resource_claims):
        yield f"spec.resourceClaims[{index}]", f"the resource claim {claim.name!r}"
    for index, volume in enumerate(spec.volumes):
        yield from _of_volume(f"spec.volumes[{index}]", volume)
    for word, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            yield from _of_container(f"spec.{word}[{index}]", container)


def _of_volume(field: str, volume: Volume) -> Iterator[tuple[str, str]]:
    for attribute in volume.__struct_fields__:
        source: Any = getattr(volume, attribute)
        if source is None or attribute == "name":
            continue
        if what := _SOURCES.get(attribute):
            yield f"{field}.{json_name(attribute)}", what
        elif getattr(source, "secret_ref", None) is not None:
            yield f"{field}.{json_name(attribute)}.secretRef", f"the secret {source.secret_ref.name!r}"
    if volume.projected is None:
        return
    for index, projection in enumerate(volume.projected.sources):
        for attribute, what in _PROJECTIONS.items():
            if getattr(projection, attribute) is not None:
                yield f"{field}.projected.sources[{index}].{json_name(attribute)}", what


def _of_container(field: str, container: Container) -> Iterator[tuple[str, str]]:
    for index, whole in enumerate(container.env_from):
        if whole.config_map_ref is not None:
            yield f"{field}.envFrom[{index}].configMapRef", f"the config map {whole.config_map_ref.name!r}"
        if whole.secret_ref is not None:
            yield f"{field}.envFrom[{index}].secretRef", f"the secret {whole.secret_ref.name!r}"
    for index, variable in enumerate(container.env):
        source = variable.value_from
        if source is None:
            continue
        where = f"{field}.env[{index}].valueFrom"
        if source.config_map_key_ref is not None:
            yield f"{where}.configMapKeyRef", f"the config map {source.config_map_key_ref.name!r}"
        if source.secret_key_ref is not None:
            yield f"{where}.secretKeyRef", f"the secret {source.secret_key_ref.name!r}"
