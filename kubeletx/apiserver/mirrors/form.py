"""Builds mirror pods (`mirror_of`), compares them with their static pods and plans changes (`plan_mirrors`). Pure.

The mirror pod is the static pod as written, plus what the API server needs, minus what it refuses:

- the annotation ``kubernetes.io/config.mirror`` with the static pod's hash, by which kubectl finds its events, and the
  Node as the owner, as NodeRestriction demands;
- fields that only kubeletx has become annotations, and a virtual machine becomes one container (`kube.machine_form`),
  since an API server prunes unknown fields and refuses a pod without containers; docs/decisions/0004 gives the reasons;
- first-boot data of machines is left out: it often holds passwords, and users who can read pods can read annotations;
- block devices are left out, since the API server refuses any but claims; so are priorities, which it
  computes itself.

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
    """Step of `plan_mirrors`: create a mirror pod of this static pod."""

    static: DesiredPod


class Delete(msgspec.Struct, frozen=True):
    """Step of `plan_mirrors`: delete this mirror pod. `why`: reason for the log."""

    mirror: Pod
    why: str


Step = Create | Delete


def static_hash(static: DesiredPod) -> str:
    """Return the value of the annotation ``config.mirror`` for a mirror of this pod: the hash of the pod's manifest.

    A pod applied with `kubeletx apply` has no such hash, since it can change in place: its UID is returned.
    """
    return static.pod.metadata.annotations.get(names.CONFIG_HASH) or static.uid


def stands_for(mirror: Pod, static: DesiredPod) -> bool:
    """Return True if the mirror pod belongs to this static pod: its annotation holds the pod's `static_hash`."""
    return mirror.metadata.annotations.get(names.CONFIG_MIRROR) == static_hash(static)


def is_current(mirror: Pod, static: DesiredPod) -> bool:
    """Return True if the mirror pod belongs to this static pod and shows the pod's present spec."""
    seen = mirror.metadata.annotations.get(names.POD_SPEC_HASH)
    return stands_for(mirror, static) and seen == static.spec_hash


def plan_mirrors(
    statics: Mapping[Key, DesiredPod],
    mirrors: Mapping[Key, Pod],
    *,
    unsure: Iterable[Key] = (),
    all_seen: bool = True,
) -> Iterator[Step]:
    """Yield the next steps, at most one for each pod name; a mirror that must be replaced is deleted first.

    `statics`: every static pod on this node. `mirrors`: every mirror pod in the API server. `unsure`: keys of static
    pods that were recovered after a restart and that no source has reported yet; their mirrors stay unchanged.
    `all_seen`: False until every source has reported, so that no mirror is deleted too early.
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
        elif not static.is_ending and not is_current(mirror, static):
            yield Delete(mirror, "its static pod has changed")
    for key, static in statics.items():
        if key not in mirrors and key not in left_alone and not static.is_ending:
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
    return tuple(
        replace(container, volume_devices=()) if container.volume_devices else container
        for container in containers
    )
