"""Form of a static pod in the API server: `mirror_of`, and the comparison of a mirror with its pod. Pure.

The mirror is the pod as written, plus what the API server needs, minus what it refuses:

- the annotation ``kubernetes.io/config.mirror`` with the static pod's hash, by which kubectl finds its events, and the
  Node as the owner, which NodeRestriction demands of a node;
- fields that only kubeletx has become annotations, and a machine becomes one container (`kube.machine_form`), since
  an API server prunes unknown fields and refuses a pod without containers; docs/decisions/0004 says why this form;
- first-boot data of machines stays on the node: it often holds passwords, and annotations are readable with pods;
- block devices and priorities are left out: the first are refused unless they are claims, the second are computed.

Source: kubelet, pkg/kubelet/pod/mirror_client.go; kubectl, pkg/describe (events of mirror pods).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.manifests.machine_form import as_containers
from kubeletx.kube.types.container import Container
from kubeletx.kube.types.core import ObjectMeta, OwnerReference, Pod, PodStatus
from kubeletx.pods import DesiredPod

Key = tuple[str, str]
"""Namespace and name."""

WITHHELD: Final = frozenset(
    {names.VM_USER_DATA, names.VM_USER_DATA_BASE64, names.VM_SCRIPT, names.VM_META_DATA}
)
_LOCAL: Final = frozenset({names.BOUND_RUNTIME, names.CONFIG_MIRROR})


class Create(msgspec.Struct, frozen=True):
    """Step of the plan: create a mirror of this static pod."""

    static: DesiredPod


class Delete(msgspec.Struct, frozen=True):
    """Step of the plan: delete this mirror. `why`: reason for the log."""

    mirror: Pod
    why: str


Step = Create | Delete


def static_hash(static: DesiredPod) -> str:
    """Return the value of annotation ``config.mirror``: the manifest's hash; for an applied pod, which changes in
    place, its UID.
    """
    return static.pod.metadata.annotations.get(names.CONFIG_HASH) or static.uid


def stands_for(mirror: Pod, static: DesiredPod) -> bool:
    """Return True if the mirror belongs to this static pod, whose hash is in its annotation."""
    return mirror.metadata.annotations.get(names.CONFIG_MIRROR) == static_hash(static)


def is_current(mirror: Pod, static: DesiredPod) -> bool:
    """Return True if the mirror belongs to this static pod and shows its present spec."""
    seen = mirror.metadata.annotations.get(names.POD_SPEC_HASH)
    return stands_for(mirror, static) and seen == static.spec_hash


def plan_mirrors(
    statics: Mapping[Key, DesiredPod],
    mirrors: Mapping[Key, Pod],
    *,
    unsure: Iterable[Key] = (),
    all_seen: bool = True,
) -> Iterator[Step]:
    """Plan the next steps, at most one for a name; a mirror to replace is deleted first.

    `statics`: every static pod on this node. `unsure`: names of pods whose source has not claimed them yet: their
    mirrors stay unchanged. `all_seen`: False until every source has reported, so that no mirror is removed too early.
    """
    left_alone = frozenset(unsure)
    for key, mirror in mirrors.items():
        static = statics.get(key)
        if mirror.metadata.deletion_timestamp is not None:
            if static is not None or all_seen:
                yield Delete(mirror, "it is being deleted")
        elif key in left_alone:
            continue
        elif static is None:
            if all_seen:
                yield Delete(mirror, "its static pod is gone")
        elif not static.is_going and not is_current(mirror, static):
            yield Delete(mirror, "its static pod has changed")
    for key, static in statics.items():
        if key not in mirrors and key not in left_alone and not static.is_going:
            yield Create(static)


def mirror_of(static: DesiredPod, *, node_name: str, node_uid: str) -> Pod:
    """Build the mirror pod of a static pod.

    `node_uid`: UID of the Node in the API server, which owns the mirror.
    """
    pod = as_containers(static.pod)
    notes = {
        key: text
        for key, text in pod.metadata.annotations.items()
        if key not in WITHHELD and key not in _LOCAL
    }
    notes |= {names.CONFIG_MIRROR: static_hash(static), names.POD_SPEC_HASH: static.spec_hash}
    owner = OwnerReference(api_version="v1", kind="Node", name=node_name, uid=node_uid, controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            labels=pod.metadata.labels,
            annotations=notes,
            owner_references=(owner,),
        ),
        spec=replace(
            pod.spec,
            node_name=node_name,
            priority=None,
            ephemeral_containers=(),
            containers=_without_devices(pod.spec.containers),
            init_containers=_without_devices(pod.spec.init_containers),
        ),
        status=PodStatus(),
    )


def _without_devices(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(one, volume_devices=()) if one.volume_devices else one for one in containers)
