"""Sources of volumes: the fields of a v1 Volume, by which part of the agent prepares them.

Most plain kinds are prepared by the agent itself (`kinds`). The other fields need a volume driver of a plugin.
"""

from __future__ import annotations

from typing import Final

from kubeletx.kube.types.core import VolumeSource
from kubeletx.kube.types.meta import json_name

OWN_KINDS: Final = (
    "empty_dir",
    "host_path",
    "downward_api",
    "projected",
    "config_map",
    "secret",
    "image",
    "nfs",
    "persistent_volume_claim",
    "ephemeral",
)
"""Attributes of `Volume` that the agent prepares itself, or resolves to a persistent volume."""
DRIVER_SOURCES: Final = tuple(
    sorted(json_name(name) for name in VolumeSource.__struct_fields__ if name not in OWN_KINDS)
)
"""JSON names of the other fields, which volume drivers of plugins can serve."""
NAMED_DRIVERS: Final = ("csi", "flexVolume")
"""Those of the fields that have a driver's name."""
