"""Identity of a static pod: UID, name and annotations, as the kubelet assigns them.

The UID is a hash of the pod, the node's name and the manifest's path or URL. A changed manifest is therefore another
pod: the old pod ends, then the new one starts. The node's name is appended to the pod's name, so that the same
manifest can be used on every node. A UID in the manifest is ignored, since two copies of the file would have the same
UID. Source: kubelet, pkg/kubelet/config/common.go.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

import msgspec

from kubeletx.api import PodUid, names
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.types.core import Pod, PodStatus, Toleration
from kubeletx.pods.model.sources import BUILT_IN

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
