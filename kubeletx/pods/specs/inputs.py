"""`UnitInputs` and `SandboxInputs`: the values from which the spec of a unit or sandbox is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kubeletx.api import IdMapping, ImageStatus, LogMode, RuntimeName, Traits, UnitId
from kubeletx.kube.types.core import Pod, PodUnit
from kubeletx.volumes.cluster_objects import ObjectSet

from ..model.node_context import NodeContext
from .extras import GivenExtras


class UnitInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Values from which the `UnitSpec` of one unit (container or machine) is built.

    `attempt`: the unit's restart count. `image`: None if the runtime manages no images. `traits`: properties of the
    runtime; None if it has never answered. `pod_ips`: the sandbox's addresses; empty for host network. `target_unit`:
    the unit whose processes an ephemeral container shares. `user_mappings`: ID mapping of the pod's user namespace;
    None: the node's user namespace. `objects`: config maps and secrets that the environment refers to; None if the
    pod's source is not a cluster. `services`: service variables. `extras`: additions of other components of the
    agent (see `specs.extras`).
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
        """The runtime's log mode: who writes container logs, and in which format. FILE if it has never answered."""
        return self.traits.log_mode if self.traits is not None else LogMode.FILE


class SandboxInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Values from which the `SandboxSpec` of one pod is built.

    `attempt`: attempt number of the sandbox. `handler`: CRI runtime handler; empty: the runtime's default.
    `runtime_kind` and `workload_type`: `kind` and `workload_type` of the runtime's `api.Endpoint`. `source`: name of
    the pod's source. `spec_hash`: hash of the pod's spec. `cgroup_parent`: the pod's cgroup; empty: none.
    `user_mappings`: ID mapping of the pod's user namespace; None: the node's user namespace.
    """

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
