"""Types that volume kinds share: their input `SetUp`, their output `PreparedVolume`, and their error."""

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

    `source`: absolute path; empty for an image volume, where `image` is its reference. `managed`: the
    directory and its content are the agent's, which may relabel and remove them; False for a hostPath, a
    local volume and an NFS export. `plugin`: the kubelet's name of the volume's kind, for metrics.
    `optional`: files may be missing, since a cluster object they come from is optional.
    """

    name: str
    kind: SourceKind = SourceKind.DIRECTORY
    source: str = ""
    read_only: bool = False
    managed: bool = True
    image: str = ""
    plugin: str = ""
    optional: bool = False


class PreparedVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """All prepared volumes of one pod, by the volume's name."""

    uid: PodUid
    volumes: dict[str, PreparedVolume] = {}


class SetUp(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a volume kind's set-up function, for one volume."""

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
"""Set-up function of a volume kind. A call for an already prepared volume may change its content only.

It blocks; it raises KubeletxError or OSError.
"""


class VolumeError(InvalidPod):
    """Raised for a volume that cannot be prepared until its manifest changes (event FailedMount)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=Event.FAILED_MOUNT)
