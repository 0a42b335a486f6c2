"""Volumes of pods: prepared on the node before the sandbox is created, mounted into containers, removed at the end."""

from .cluster_objects import ObjectSet
from .container_mounts import ContainerMounts
from .mounting import LinuxMounter, Mounter, ensure_shared
from .pod_fields import FieldContext
from .prepared import PreparedVolume, PreparedVolumes, SetUp, SetUpVolume, VolumeError
from .preparer import VolumePreparer
from .teardown import Orphan

__all__ = [
    "ContainerMounts",
    "FieldContext",
    "LinuxMounter",
    "Mounter",
    "ObjectSet",
    "Orphan",
    "PreparedVolume",
    "PreparedVolumes",
    "SetUp",
    "SetUpVolume",
    "VolumeError",
    "VolumePreparer",
    "ensure_shared",
]
