"""Types of the set-up functions of volume kinds: their input `SetUp`, their output `PreparedVolume`, their error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from kubeletx.api import InvalidPod, PodUid, SourceKind
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, Volume

from .cluster_objects import ObjectSet
from .mounting import Mounter
from .pod_fields import FieldContext


class PreparedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume that is ready on the node.

    `source`: absolute path on the node; empty for an image volume. `image`: image reference of an image volume,
    otherwise empty. `managed`: True if the agent owns the directory and may relabel and remove it; False for a
    hostPath, a local volume, an NFS export and an image. `plugin`: the kubelet's name of the volume's kind, for
    metrics. `optional`: True if files may be missing because a cluster object is optional.
    """

    name: str
    kind: SourceKind = SourceKind.DIRECTORY
    source: str = ""
    read_only: bool = False
    managed: bool = True
    image: str = ""
    plugin: str = ""
    optional: bool = False
    has_stats: bool = False
    """A volume driver measures the volume."""


class PreparedVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """All prepared volumes of one pod, by volume name."""

    uid: PodUid
    volumes: dict[str, PreparedVolume] = {}


class SetUp(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the set-up function of a volume kind (`SetUpVolume`): the volume, its pod, and what is needed for it.

    `root_dir`: the agent's root directory. `fields`: values for downward API files.
    """

    pod: Pod
    volume: Volume
    root_dir: Path
    mounter: Mounter
    fields: FieldContext
    objects: ObjectSet | None
    """Objects that the pod's volumes refer to; None if the pod's source has no cluster."""
    field: str
    """Path of the volume in the manifest, such as ``spec.volumes[0]``."""

    @property
    def fs_group(self) -> int | None:
        """The pod's fsGroup; None if it has none."""
        security = self.pod.spec.security_context
        return security.fs_group if security is not None else None


SetUpVolume: TypeAlias = Callable[[SetUp], PreparedVolume]
"""Set-up function of a volume kind: prepares one volume and returns it. It blocks and raises KubeletxError or OSError.

A call for a volume that is already prepared may only update the volume's content.
"""


class VolumeError(InvalidPod):
    """Raised for a volume that cannot be prepared unless the pod's manifest changes; its reason is FailedMount."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=Event.FAILED_MOUNT)
