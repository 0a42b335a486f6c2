"""`ManifestReader`: converts the bytes of a manifest to static pods that are ready to run, or to one error.

The steps: parse, set defaults, validate, refuse references to API objects that only a cluster has, set UID and name. A
manifest with one invalid pod is refused as a whole: otherwise that pod would look as if it had been removed.

The UID is a hash of the pod, the node's name and the manifest's path or URL. A changed manifest is therefore another
pod: the old pod ends, then the new one starts. The node's name is appended to the pod's name, so that the same
manifest can be used on every node. A UID in the manifest is ignored, since two copies of the file would have the same
UID. Source: kubelet, pkg/kubelet/config/common.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from kubeletx.api import InvalidPod, PodUid, names
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.describe import describe
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.manifests.load import load_all, load_manifest
from kubeletx.kube.manifests.objects import Key, LocalObject, key_of
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import Pod, PodStatus, Toleration
from kubeletx.kube.validation import validate_pod
from kubeletx.pods.model.sources import BUILT_IN


class InvalidManifest(InvalidPod):
    """Raised for a manifest with one or more problems.

    The message has the first problem, and the number of further problems. `problems`: all of them.
    """

    def __init__(self, problems: tuple[InvalidPod, ...]) -> None:
        first, more = problems[0], len(problems) - 1
        super().__init__(obj=first.obj, field=first.field, problem=first.problem, fix=first.fix)
        self.problems = problems
        if more:
            self.message = f"{self.message} (and {more} more problem{'s' if more > 1 else ''})"


class Manifest(NamedTuple):
    """The pods of a manifest, ready to run, and its config maps, secrets and claims.

    `unknown`: pods that have unknown fields, with these fields' paths.
    """

    pods: tuple[Pod, ...]
    unknown: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    objects: tuple[LocalObject, ...] = ()


OnUnknown = Callable[[Pod, tuple[str, ...]], None]
"""Called with a pod and the paths of the unknown fields in its manifest, which have no effect."""


def ignore_unknown(pod: Pod, fields: tuple[str, ...]) -> None:
    """Do nothing; an `OnUnknown` for callers that ignore unknown fields."""


class ManifestReader(msgspec.Struct, frozen=True, kw_only=True):
    """Reads manifests of static pods for one node.

    `workload_types`: the workload types that a pod may have on this node, such as container; None: any.
    `with_objects`: manifests may have config maps, secrets and claims.
    """

    node_name: str
    workload_types: Collection[str] | None = None
    with_objects: bool = False

    def read(self, data: bytes, *, origin: str, source: str, seen_at: datetime) -> Manifest:
        """Convert `data` to pods, in the order of the manifest. Raises InvalidPod if one of them is invalid.

        The result is empty only if the manifest is an empty list. `origin`: path or URL of the manifest. `source`:
        name of the pod source. `seen_at`: present time, used as the creation time of new pods; a pod that the pod
        manager knows already keeps its creation time.
        """
        if self.with_objects:
            written, objects = load_all(data, origin)
        else:
            written, objects = load_manifest(data, origin), []
        pods = tuple(set_defaults(item.pod) for item in written)
        problems = [problem for pod in pods for problem in self._problems(pod, origin)]
        problems += _duplicates([("Pod", pod.namespace, pod.name) for pod in pods], origin)
        problems += _duplicates([key_of(loaded.item) for loaded in objects], origin)
        if problems:
            raise InvalidManifest(tuple(problems))
        made = tuple(
            give_identity(
                pod,
                static_uid(original.pod, node_name=self.node_name, origin=origin),
                source=source,
                node_name=self.node_name,
                seen_at=seen_at,
            )
            for original, pod in zip(written, pods, strict=True)
        )
        unknown = tuple((pod, item.unknown) for item, pod in zip(written, made, strict=True) if item.unknown)
        items = tuple(_identified(loaded.item, origin, self.node_name, seen_at) for loaded in objects)
        return Manifest(made, unknown, items)

    def _problems(self, pod: Pod, origin: str) -> tuple[InvalidPod, ...]:
        problems = validate_pod(pod, origin, self.workload_types) + refused_references(pod, origin)
        name = static_name(pod.metadata.name, self.node_name)
        if problems or len(name) <= 253:
            return problems
        problem = f"{pod.metadata.name!r} is too long: {name!r} has {len(name)} characters"
        return (InvalidPod(obj=origin, field="metadata.name", problem=problem, fix="use a shorter name"),)


def _duplicates(keys: list[Key], origin: str) -> list[InvalidPod]:
    seen: set[Key] = set()
    problems = []
    for key in keys:
        if key in seen:
            kind, namespace, name = key
            problem = f"'{namespace}/{name}' is in this manifest twice"
            fix = f"rename one of the {'pods' if kind == 'Pod' else 'objects'}"
            obj = describe(origin, name, kind)
            problems.append(InvalidPod(obj=obj, field="metadata.name", problem=problem, fix=fix))
        seen.add(key)
    return problems


def _identified(item: LocalObject, origin: str, node_name: str, seen_at: datetime) -> LocalObject:
    uid = hashlib.blake2b("\0".join((*key_of(item), node_name, origin)).encode(), digest_size=16).hexdigest()
    metadata = msgspec.structs.replace(item.metadata, uid=uid, creation_timestamp=seen_at)
    return msgspec.structs.replace(item, metadata=metadata)


_TOLERATES_ALL: Final = Toleration(operator="Exists", effect="NoExecute")


def static_uid(pod: Pod, *, node_name: str, origin: str) -> PodUid:
    """Compute the UID of a static pod as a hash of the pod, the node's name and `origin`.

    `pod`: the pod as the manifest defines it, before defaults are set. `origin`: the manifest's path or URL.
    """
    parts = "\0".join((pod_hash(pod), node_name, origin))
    return PodUid(hashlib.blake2b(parts.encode(), digest_size=16).hexdigest())


def static_name(name: str, node_name: str) -> str:
    """Return the name of a static pod on this node: the name in the manifest, a dash, and the node's name."""
    return f"{name}-{node_name.lower()}"


def give_identity(pod: Pod, uid: PodUid, *, source: str, node_name: str, seen_at: datetime) -> Pod:
    """Return the pod with this UID, the name of `static_name`, the node name, and the kubelet's config annotations.

    `source`: name of the pod source. Pods of some sources, such as manifest files, also get a toleration of every
    NoExecute taint. `seen_at`: used as the pod's creation time.
    """
    metadata = msgspec.structs.replace(
        pod.metadata,
        uid=uid,
        name=static_name(pod.metadata.name, node_name),
        generate_name="",
        resource_version="",
        creation_timestamp=seen_at,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
        annotations={
            **pod.metadata.annotations,
            names.CONFIG_HASH: uid,
            names.CONFIG_SEEN: seen_at.isoformat(),
            names.CONFIG_SOURCE: source,
        },
    )
    tolerations = pod.spec.tolerations
    if BUILT_IN.of(source).tolerates_taints and _TOLERATES_ALL not in tolerations:
        tolerations = (*tolerations, _TOLERATES_ALL)
    spec = msgspec.structs.replace(pod.spec, node_name=node_name, tolerations=tolerations)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))
