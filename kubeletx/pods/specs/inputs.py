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
    """Everything that the spec of one unit is built from: pod, container and node, and data that only the agent has.

    `attempt`: the unit's restart count. `image`: None when the runtime keeps no images. `traits`: of the runtime; None
    while it was never reached. `pod_ips`: the sandbox's addresses; empty for host network. `objects`: config maps and
    secrets that the environment refers to; None when the pod's source has no cluster behind it. `services`: service
    variables. `extras`: additions of other parts of the agent (see `extras`).
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
        """Log mode of the runtime (who writes its logs, and in which form); FILE while the runtime was never reached."""
        return self.traits.log_mode if self.traits is not None else LogMode.FILE


class SandboxInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the spec of one sandbox is built from: pod and node, and data that only the agent has."""

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
