"""`UnitInputs` and `SandboxInputs`: the values that one unit or sandbox is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kubeletx.api import IdMapping, ImageStatus, LogMode, RuntimeName, Traits, UnitId
from kubeletx.kube.types.core import Pod, PodUnit
from kubeletx.volumes.cluster_objects import ObjectSet

from ..model.node_context import NodeContext
from .extras import GivenExtras


class UnitInputs(msgspec.Struct, frozen=True, kw_only=True):
    """One unit: its pod, container and node, and what only the agent knows.

    `attempt`: the unit's restart count. `image`: None when the runtime keeps no images. `traits`: of the runtime; None
    while it was never reached. `pod_ips`: the sandbox's addresses; empty for host network. `objects`: what the
    environment refers to; None when the pod's source has no cluster behind it. `services`: service variables. `extras`: of
    the providers that other rooms register.
    """

    pod: Pod
    container: PodUnit
    node: NodeContext
    attempt: int
    runtime_name: RuntimeName
    image: ImageStatus | None = None
    traits: Traits | None = None
    pod_ips: Sequence[str] = ()
    target_unit: UnitId | None = None
    user_mappings: tuple[IdMapping, ...] | None = None
    objects: ObjectSet | None = None
    services: Mapping[str, str] | None = None
    extras: Sequence[GivenExtras] = ()

    @property
    def log_mode(self) -> LogMode:
        """Log mode of the runtime; FILE while unknown."""
        return self.traits.log_mode if self.traits is not None else LogMode.FILE


class SandboxInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Values for one sandbox: its pod and node, and what only the agent has."""

    pod: Pod
    node: NodeContext
    attempt: int
    handler: str
    runtime_name: RuntimeName
    runtime_kind: str
    workload_type: str
    source: str
    spec_hash: str
    cgroup_parent: str = ""
    user_mappings: tuple[IdMapping, ...] | None = None
