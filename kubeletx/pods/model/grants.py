"""Resources that in-place resizes have granted to a running pod and its containers.

The pod's overrides file stores them (see `workloads.overrides`).
"""

from __future__ import annotations

import msgspec

from kubeletx.api import UnitId
from kubeletx.kube.types.core import ResourceRequirements


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU and memory granted to one container.

    `restart`: unit `unit_id` must be restarted to apply them. `before`: what the unit has until then; None: unknown.
    """

    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False
    before: ResourceRequirements | None = None


class Grants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources granted by resizes of one pod. Subclass `PodOverrides` adds the requests of operators."""

    granted: dict[str, Granted] = {}
    """Container name → granted resources. A container that is not listed has the resources of its creation."""
    granted_pod: ResourceRequirements | None = None
    """Granted pod-level CPU and memory; None: the pod has the resources of its creation."""
