"""Finds references that a static pod may not have: to objects that only an API server provides.

Static pods start without an API server, so a reference to a service account could never be resolved and is refused.
Config maps, secrets and claims may be objects of this node (`objects`), unlike in a kubelet, where
PreventStaticPodAPIReferences of pkg/api/pod/util.go refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeletx.api import InvalidPod

from ..types.core import Pod
from ..types.meta import json_name
from ..types.volumes import Volume
from .describe import describe

_FIX: Final = "a static pod has no API server to ask: use a file of the node (hostPath) or a literal value"
_SOURCES: Final = {
    "ephemeral": "a claim that the cluster makes",
    "csi": "a CSI driver's attachment",
    "azure_file": "a secret",
    "glusterfs": "endpoints",
}
_PROJECTIONS: Final = {
    "service_account_token": "a service account token",
    "cluster_trust_bundle": "a trust bundle",
    "pod_certificate": "a pod certificate",
}


def refused_references(pod: Pod, origin: str, *, exists: bool = False) -> tuple[InvalidPod, ...]:
    """Return one problem for each reference to an object of the API server; empty if the pod has none.

    Scheduling gates are a problem, too, since only an API server can remove them, and ephemeral containers, since only
    an API server or ``kubeletx debug`` can add them. `origin`: file or URL of the pod, named in each problem. `exists`: the
    pod exists, so that ephemeral containers may be added.
    """
    obj = describe(origin, pod.metadata.name)
    refused = [
        InvalidPod(obj=obj, field=field, problem=f"refers to {what}", fix=_FIX)
        for field, what in _references(pod)
    ]
    if pod.spec.ephemeral_containers and not exists:
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
    for index, claim in enumerate(spec.resource_claims):
        yield f"spec.resourceClaims[{index}]", f"the resource claim {claim.name!r}"
    for index, volume in enumerate(spec.volumes):
        yield from _of_volume(f"spec.volumes[{index}]", volume)


def _of_volume(field: str, volume: Volume) -> Iterator[tuple[str, str]]:
    for attribute in volume.__struct_fields__:
        if getattr(volume, attribute) is not None and (what := _SOURCES.get(attribute)):
            yield f"{field}.{json_name(attribute)}", what
    if volume.projected is None:
        return
    for index, projection in enumerate(volume.projected.sources):
        for attribute, what in _PROJECTIONS.items():
            if getattr(projection, attribute) is not None:
                yield f"{field}.projected.sources[{index}].{json_name(attribute)}", what
