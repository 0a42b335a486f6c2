"""Hashes that show whether a pod or a container's image has changed since it was started.

Hashes are stored, for instance in annotations of containers, and a later version of the agent compares them. Their
input is therefore the JSON form with sorted keys, without values that equal their default: a version with more fields
computes the same hash.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from kubeletx.api import names

from ..types.container import Container
from ..types.core import Pod
from ..types.machine import VirtualMachine

_OURS = frozenset(
    {names.CONFIG_SOURCE, names.CONFIG_SEEN, names.CONFIG_HASH, names.CONFIG_MIRROR, names.BOUND_RUNTIME}
)


def pod_hash(pod: Pod) -> str:
    """Return a hash of what the author of a pod writes: name, namespace, labels, annotations and spec.

    The order of keys does not matter. Annotations that the agent itself adds are left out.
    """
    metadata = pod.metadata
    return _digest(
        [
            metadata.namespace,
            metadata.name,
            metadata.labels,
            {key: value for key, value in metadata.annotations.items() if key not in _OURS},
            pod.spec,
        ]
    )


def container_hash(container: Container | VirtualMachine) -> str:
    """Return a hash of a container's name and image. If the hash changes, only this container is restarted.

    Source: kubelet, pkg/kubelet/container/helpers.go.
    """
    return _digest([container.name, container.image])


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
