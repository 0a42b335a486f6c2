"""Hashes that show whether a pod or container is still the one that was started.

They go into annotations and outlive the agent, so their input is the JSON form with sorted keys, which leaves out
values equal to their default: a later version with more fields computes the same hash.
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
    """Hash the author's part of a pod: name, namespace, labels, annotations and spec.

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
    """Hash a container's name and image: when the image changes, only this container is restarted.

    Source: kubelet, pkg/kubelet/container/helpers.go.
    """
    return _digest([container.name, container.image])


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
