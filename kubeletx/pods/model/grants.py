"""Resources granted to a running pod since its creation.

A file in its directory stores them (`workloads.overrides`).
"""

from __future__ import annotations

import msgspec

from kubeletx.api import UnitId
from kubeletx.kube.types.core import ResourceRequirements


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU and memory granted to a running container. `restart`: it gets them by its next restart."""

    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False


class Grants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Grants of one pod, whatever its workload is. `workloads.overrides` adds what operators requested."""

    granted: dict[str, Granted] = {}
    """Granted resources by container; a container not listed has those of its creation."""
    granted_pod: ResourceRequirements | None = None
    """CPU and memory granted to the pod as a whole; None: those of its creation."""
