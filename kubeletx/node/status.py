"""`NodeReporter`: builds the current Node object from the other modules of this package.

`load` reads once what does not change while the agent runs (addresses, capacity). Each `update` computes the
conditions and compares them with the previous ones to keep transition times; `build` makes the Node with
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kubeletx.api import Clock, RuntimeVersion, Traits
from kubeletx.api.names import (
    CONTROLLER_ATTACHES,
    PROVIDED_NODE_IP,
    RUNTIME_LABEL_PREFIX,
    RUNTIME_TYPE_PREFIX,
    RUNTIME_VERSION_PREFIX,
)
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import (
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeSpec,
    NodeStatus,
)
from kubeletx.runtimes.binding.features import refuses_of
from kubeletx.runtimes.binding.selection import HANDLER_MARK

from .capacity import NodeResources, allocatable, missing_resources, read_capacity, resource_list
from .condition_table import ConditionTimes, Times
from .identity import detect_node_ips, names_no_address, node_addresses, node_name
from .info import architecture, read_system_info
from .readiness import CheckFacts, NodeFacts, Policy, Pressure, RuntimeFacts, node_conditions, with_times
from .taints import type_taints

NO_PRESSURE = Pressure()
SETTLE_SECONDS = 30.0
"""Time after a start in which conditions keep their earlier transition times, since runtimes answer only after a while.
"""
STRICT_GROUPS = "strict-groups"
MAX_IMAGE_NAMES = 5


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings of the node. Quantities are texts, as in the configuration."""

    root_dir: Path
    version: str
    hostname_override: str | None = None
    node_ips: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    provider_id: str | None = None
    max_pods: int = 110
    pods_per_core: int = 0
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    hard_eviction: dict[str, str] = {}
    policy: Policy = Policy.PARTIAL
    port: int | None = None
    """Port of the kubelet's HTTPS API; None if it is not served."""
    max_images: int = 50
    """Number of images in the status; negative means all."""
    external_cloud: bool = False
    """True if a cloud controller sets the node's addresses; until it has, the node reports those of
    `node_ips`.
    """
    declared_features: tuple[str, ...] = ()
    """Names of the optional features that the node declares, sorted."""


class RuntimeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime, as input of the Node object.

    `version` and `traits`: None until the runtime first answered.
    """

    facts: RuntimeFacts
    version: RuntimeVersion | None = None
    traits: Traits | None = None


class NodeReporter:
    """Computes the node's conditions and builds the Node object; call `load` before the other methods."""

    def __init__(self, plan: NodePlan, *, clock: Clock) -> None:
        """`plan`: the operator's settings."""
        self.plan = plan
        self._clock = clock
        self.name = node_name(plan.hostname_override)
        self.ips: tuple[str, ...] = ()
        self.capacity = NodeResources()
        self.allocatable = NodeResources()
        self.pods_limit = NodeResources()
        """Limit of all pods together, for the kernel; unlike `allocatable` it includes what eviction keeps
        free.
        """
        self._created_at = clock.now()
        self._conditions: tuple[NodeCondition, ...] = ()
        self._times: ConditionTimes | None = None
        self._before: Times = {}
        """Transition times that an earlier agent process stored; used for `SETTLE_SECONDS` after the start.
        """
        self._settled_at = clock.monotonic()

    def load(self) -> None:
        """Read addresses and capacity of the machine. Raises InvalidConfig for invalid settings."""
        plan = self.plan
        self.ips = detect_node_ips(plan.node_ips)
        self.capacity = read_capacity(plan.root_dir, max_pods=plan.max_pods, pods_per_core=plan.pods_per_core)
        reserved = {"kube_reserved": plan.kube_reserved, "system_reserved": plan.system_reserved}
        self.pods_limit = allocatable(self.capacity, **reserved)
        self.allocatable = allocatable(self.capacity, **reserved, hard_eviction=plan.hard_eviction)

    async def remember(self, times: ConditionTimes) -> None:
        """Keep transition times in `times` from now on, and use those that an earlier agent process stored
        there.
        """
        self._before, self._times = await times.load(), times
        self._settled_at = self._clock.monotonic() + SETTLE_SECONDS

    @property
    def conditions(self) -> tuple[NodeCondition, ...]:
        """Conditions computed by the last `update`; empty before."""
        return self._conditions

    def update(
        self,
        runtimes: Sequence[RuntimeReport],
        *,
        pressure: Pressure = NO_PRESSURE,
        problems: Sequence[str] = (),
        checks: Sequence[CheckFacts] = (),
    ) -> bool:
        """Compute the conditions. Returns True if the status of one changed.

        `problems`: further reasons why Ready is False.
        """
        before = {condition.type: condition.status for condition in self._conditions}
        facts = NodeFacts(
            runtimes=tuple(runtime.facts for runtime in runtimes),
            policy=self.plan.policy,
            pressure=pressure,
            missing_resources=missing_resources(self.capacity),
            problems=tuple(problems),
            checks=tuple(checks),
        )
        conditions = node_conditions(facts, previous=self._conditions, now=self._clock.now())
        if self._before and self._clock.monotonic() >= self._settled_at:
            self._before = {}
        self._conditions = with_times(conditions, self._before)
        if self._times is not None and not self._before:
            self._times.note(self._conditions)
        return before != {condition.type: condition.status for condition in self._conditions}

    def build(self, runtimes: Sequence[RuntimeReport], *, images: Sequence[ContainerImage] = ()) -> Node:
        """Return the Node object, with the conditions of the last `update`."""
        plan = self.plan
        port = DaemonEndpoint(port=plan.port) if plan.port else None
        return Node(
            metadata=ObjectMeta(
                name=self.name,
                uid=self.name,
                labels={**node_labels(self.name, plan.labels), **runtime_labels(runtimes)},
                annotations={
                    CONTROLLER_ATTACHES: "true",
                    **runtime_types(runtimes),
                    **runtime_versions(runtimes),
                    **self._provided_ips(),
                },
                creation_timestamp=self._created_at,
            ),
            spec=NodeSpec(
                provider_id=plan.provider_id, taints=type_taints(runtime.facts for runtime in runtimes)
            ),
            status=NodeStatus(
                capacity=resource_list(self.capacity),
                allocatable=resource_list(self.allocatable),
                conditions=self._conditions,
                addresses=node_addresses(self.name, self._own_ips()),
                daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=port) if port else None,
                node_info=read_system_info(kubelet_version=plan.version, runtime=default_version(runtimes)),
                images=top_images(images, plan.max_images),
                runtime_handlers=tuple(runtime_handlers(runtimes)),
                features=node_features(runtimes),
                declared_features=plan.declared_features,
            ),
        )

    def _own_ips(self) -> tuple[str, ...]:
        """Return the addresses to report; none if a cloud controller sets them and the operator gave none."""
        return () if self.plan.external_cloud and not self.plan.node_ips else self.ips

    def _provided_ips(self) -> dict[str, str]:
        """Return the annotation that a cloud controller compares with its addresses; empty if there is
        nothing to compare.
        """
        if not self.plan.external_cloud or names_no_address(self.plan.node_ips):
            return {}
        return {PROVIDED_NODE_IP: ",".join(self.ips)}


def default_runtime(runtimes: Sequence[RuntimeReport]) -> RuntimeReport | None:
    """Return the first uncordoned container runtime, or else the first container runtime (DECISIONS 25).

    Runtimes of other types are considered only if there is no container runtime. None: there is no runtime at
    all.
    """
    containers = [r for r in runtimes if r.facts.workload_type == "container"] or list(runtimes)
    chosen = [r for r in containers if not r.facts.state.cordoned] or containers
    return chosen[0] if chosen else None


def default_version(runtimes: Sequence[RuntimeReport]) -> RuntimeVersion | None:
    """Return the version that nodeInfo shows: that of the default runtime; None if it has not answered yet."""
    default = default_runtime(runtimes)
    return default.version if default is not None else None


def runtime_handlers(runtimes: Sequence[RuntimeReport]) -> Iterator[NodeRuntimeHandler]:
    """Yield the handlers that a RuntimeClass may name: the empty one, each runtime's name, and each runtime's
    own handlers (DECISIONS 4).
    """
    default = default_runtime(runtimes)
    if default is not None:
        yield _handler("", default)
    for runtime in runtimes:
        name = runtime.facts.name
        yield _handler(name, runtime)
        for handler in runtime.facts.state.handlers:
            yield _handler(f"{name}{HANDLER_MARK}{handler}", runtime, handler)


def node_features(runtimes: Sequence[RuntimeReport]) -> NodeFeatures | None:
    """Return the features that every runtime has; None until all runtimes have answered."""
    traits = [runtime.traits for runtime in runtimes if runtime.traits is not None]
    if not traits or len(traits) < len(runtimes):
        return None
    return NodeFeatures(supplemental_groups_policy=not any(STRICT_GROUPS in one.refuses for one in traits))


def _handler(name: str, runtime: RuntimeReport, handler: str = "") -> NodeRuntimeHandler:
    traits = runtime.traits
    if traits is None:
        return NodeRuntimeHandler(name=name)
    refuses = refuses_of(traits, handler)
    return NodeRuntimeHandler(
        name=name,
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts="recursive-read-only" not in refuses,
            user_namespaces="user-namespace" not in refuses,
        ),
    )


def node_labels(name: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the default labels of every node, with the operator's labels `extra`, which replace equal keys."""
    arch = architecture()
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": os.uname().sysname.lower(),
        "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": os.uname().sysname.lower(),
        "beta.kubernetes.io/arch": arch,
        **extra,
    }


def runtime_labels(runtimes: Sequence[RuntimeReport]) -> dict[str, str]:
    """Return the label ``runtime.kubeletx.io/NAME`` of each runtime: ready, notready or cordoned.

    RuntimeClasses select nodes by these labels.
    """
    labels = {}
    for runtime in runtimes:
        state = (
            "cordoned" if runtime.facts.state.cordoned else "ready" if runtime.facts.is_ready else "notready"
        )
        labels[RUNTIME_LABEL_PREFIX + runtime.facts.name] = state
    return labels


def runtime_types(runtimes: Sequence[RuntimeReport]) -> dict[str, str]:
    """Return the annotation ``workload-type.kubeletx.io/NAME`` of every runtime, including those that never
    answered.
    """
    return {RUNTIME_TYPE_PREFIX + runtime.facts.name: runtime.facts.workload_type for runtime in runtimes}


def runtime_versions(runtimes: Sequence[RuntimeReport]) -> dict[str, str]:
    """Return the annotation ``version.kubeletx.io/NAME`` of every runtime that has answered at least once."""
    return {
        RUNTIME_VERSION_PREFIX + runtime.facts.name: f"{runtime.version.name} {runtime.version.version}"
        for runtime in runtimes
        if runtime.version is not None
    }


def top_images(images: Sequence[ContainerImage], limit: int = 50) -> tuple[ContainerImage, ...]:
    """Return the `limit` largest images, with at most five names each. `limit` negative: all images."""
    largest = sorted(images, key=lambda image: (-(image.size_bytes or 0), image.names))
    largest = largest[:limit] if limit >= 0 else largest
    return tuple(msgspec.structs.replace(image, names=image.names[:MAX_IMAGE_NAMES]) for image in largest)


def is_ready(conditions: Sequence[NodeCondition]) -> bool:
    """Return True if the condition Ready, which is always the last, is True."""
    return bool(conditions) and conditions[-1].type == "Ready" and conditions[-1].status == "True"
