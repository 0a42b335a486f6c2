"""Input and output of volume kinds: `SetUp` and `PreparedVolume`."""

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
    """One volume, ready on the node.

    `source`: absolute path; empty for an image volume, where `image` is its reference. `managed`: the agent creates,
    relabels and removes the directory; never true for a hostPath. `plugin`: the kubelet's name of the volume's kind,
    for metrics. `optional`: its objects in the cluster, and so its files, may be missing.
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
    """All volumes of one pod, by name."""

    uid: PodUid
    volumes: dict[str, PreparedVolume] = {}


class SetUp(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a volume kind for one volume."""

    pod: Pod
    volume: Volume
    root_dir: Path
    mounter: Mounter
    fields: FieldContext
    objects: ObjectSet | None
    """Objects that the pod's volumes refer to; None if its source has no cluster."""
    field: str
    """Path of the volume in the manifest, such as ``spec.volumes[0]``."""

    @property
    def fs_group(self) -> int | None:
        """The pod's fsGroup."""
        security = self.pod.spec.security_context
        return security.fs_group if security is not None else None


SetUpVolume: TypeAlias = Callable[[SetUp], PreparedVolume]
"""Prepare one volume. Called again for a prepared volume: then only new content may change.

Blocking; raises KubeletxError or OSError.
"""


class VolumeError(InvalidPod):
    """A volume of the manifest that cannot be prepared (event FailedMount)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=Event.FAILED_MOUNT)
