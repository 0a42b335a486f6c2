"""`NodeReporter`: builds the current Node object from the other modules of this package.

`load` reads addresses and capacity once, since they do not change while the agent runs. Each `update` computes the
conditions; a condition whose status is unchanged keeps its transition time. `build` makes the Node object with these
conditions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kubeletx.api import CONTAINER, Clock, RuntimeVersion, names
from kubeletx.api.names import (
    PROVIDED_NODE_IP,
    RUNTIME_LABEL_PREFIX,
    RUNTIME_TYPE_PREFIX,
    RUNTIME_VERSION_PREFIX,
)
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import (
    AttachedVolume,
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
    Taint,
)
from kubeletx.runtimes.binding.features import refuses_of
from kubeletx.runtimes.binding.selection import HANDLER_MARK

from .capacity import NodeResources, allocatable, missing_resources, read_capacity, resource_list
from .condition_table import ConditionTimes, Times
from .identity import detect_node_ips, names_no_address, node_addresses, node_name
from .info import architecture, read_system_info
from .readiness import (
    HEALTH_CONDITION_PREFIX,
    NEVER_ASKED,
    NOT_CHECKED,
    CheckFacts,
    NodeFacts,
    Policy,
    Pressure,
    RuntimeFacts,
    node_conditions,
    types_without_runtime,
    with_times,
)

NO_PRESSURE = Pressure()
SETTLE_SECONDS = 30.0
"""Time after the start in which transition times that an earlier agent process stored are used.

Runtimes answer only some time after the start, so a condition reaches its earlier status again only then.
"""
STRICT_GROUPS = "strict-groups"
MAX_IMAGE_NAMES = 5


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for the Node object. Quantities are texts, as in the configuration."""

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
    """Maximum images in the node's status; negative: no limit."""
    external_cloud: bool = False
    """True if a cloud controller sets the node's IP addresses. The agent then reports only addresses of `node_ips`."""
    declared_features: tuple[str, ...] = ()
    """Names of the optional features that the node declares, sorted."""


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
        """Limit of the cgroup of all pods: the capacity minus reserved amounts. Unlike for `allocatable`, hard eviction
        thresholds are not subtracted.
        """
        self._created_at = clock.now()
        self._conditions: tuple[NodeCondition, ...] = ()
        self._times: ConditionTimes | None = None
        self._before: Times = {}
        """Transition times that an earlier agent process stored; used for `SETTLE_SECONDS` after the start."""
        self._settled_at = clock.monotonic()

    def load(self) -> None:
        """Read the machine's addresses and capacity. Raises InvalidConfig for invalid settings."""
        plan = self.plan
        self.ips = detect_node_ips(plan.node_ips)
        self.capacity = read_capacity(plan.root_dir, max_pods=plan.max_pods, pods_per_core=plan.pods_per_core)
        reserved = {"kube_reserved": plan.kube_reserved, "system_reserved": plan.system_reserved}
        self.pods_limit = allocatable(self.capacity, **reserved)
        self.allocatable = allocatable(self.capacity, **reserved, hard_eviction=plan.hard_eviction)

    async def remember(self, times: ConditionTimes) -> None:
        """Load the transition times that an earlier agent process stored in `times`; store later ones there."""
        self._before, self._times = await times.load(), times
        self._settled_at = self._clock.monotonic() + SETTLE_SECONDS

    @property
    def conditions(self) -> tuple[NodeCondition, ...]:
        """Conditions that the last `update` computed; empty before the first."""
        return self._conditions

    def update(
        self,
        runtimes: Sequence[RuntimeFacts],
        *,
        pressure: Pressure = NO_PRESSURE,
        problems: Sequence[str] = (),
        checks: Sequence[CheckFacts] = (),
        others: Sequence[NodeCondition] = (),
    ) -> bool:
        """Compute the node's conditions and keep them for `build`. Returns True if the status of any has changed.

        `pressure`: resources under pressure. `problems`: texts of further reasons why Ready is False. `checks`:
        results of the plugins' health checks. `others`: further conditions, without their times.
        """
        before = {condition.type: condition.status for condition in self._conditions}
        facts = NodeFacts(
            runtimes=tuple(runtimes),
            policy=self.plan.policy,
            pressure=pressure,
            missing_resources=missing_resources(self.capacity),
            problems=tuple(problems),
            checks=tuple(self._with_status(check) for check in checks),
            others=tuple(others),
        )
        conditions = node_conditions(facts, previous=self._conditions, now=self._clock.now())
        if self._before and self._clock.monotonic() >= self._settled_at:
            self._before = {}
        self._conditions = with_times(conditions, self._before)
        if self._times is not None and not self._before:
            self._times.note(self._conditions)
        return before != {condition.type: condition.status for condition in self._conditions}

    def _with_status(self, check: CheckFacts) -> CheckFacts:
        """Return a check that has not run yet with the status that an earlier agent process reported.

        A restart of the agent is not a transition of the condition.
        """
        known = self._before.get(HEALTH_CONDITION_PREFIX + check.name)
        if check.reason != NOT_CHECKED or known is None:
            return check
        return msgspec.structs.replace(check, status=known[0])

    def build(
        self,
        runtimes: Sequence[RuntimeFacts],
        *,
        images: Sequence[ContainerImage] = (),
        attached: Sequence[AttachedVolume] = (),
    ) -> Node:
        """Return the Node object, with the conditions of the last `update`.

        `images`: images of all stores. `attached`: devices of volumes that are attached to the node.
        """
        plan = self.plan
        port = DaemonEndpoint(port=plan.port) if plan.port else None
        return Node(
            metadata=ObjectMeta(
                name=self.name,
                uid=self.name,
                labels={**node_labels(self.name, plan.labels), **runtime_labels(runtimes)},
                annotations={
                    **runtime_types(runtimes),
                    **runtime_versions(runtimes),
                    **self._provided_ips(),
                },
                creation_timestamp=self._created_at,
            ),
            spec=NodeSpec(provider_id=plan.provider_id, taints=type_taints(runtimes)),
            status=NodeStatus(
                capacity=resource_list(self.capacity),
                allocatable=resource_list(self.allocatable),
                conditions=self._conditions,
                addresses=node_addresses(self.name, self._own_ips()),
                daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=port) if port else None,
                node_info=read_system_info(kubelet_version=plan.version, runtime=default_version(runtimes)),
                images=top_images(images, plan.max_images),
                volumes_in_use=tuple(volume.name for volume in attached),
                volumes_attached=tuple(attached),
                runtime_handlers=tuple(runtime_handlers(runtimes)),
                features=node_features(runtimes),
                declared_features=plan.declared_features,
            ),
        )

    def _own_ips(self) -> tuple[str, ...]:
        """Return the IP addresses to report; none if a cloud controller sets them and the operator gave none."""
        return () if self.plan.external_cloud and not self.plan.node_ips else self.ips

    def _provided_ips(self) -> dict[str, str]:
        """Return the annotation with the operator's addresses, which a cloud controller compares with its own.

        Empty: there is no external cloud, or the operator gave no address.
        """
        if not self.plan.external_cloud or names_no_address(self.plan.node_ips):
            return {}
        return {PROVIDED_NODE_IP: ",".join(self.ips)}


def default_runtime(runtimes: Sequence[RuntimeFacts]) -> RuntimeFacts | None:
    """Return the first uncordoned container runtime, or else the first container runtime (DECISIONS 25).

    Without container runtimes, the runtimes of all other workload types are considered. None: there is no runtime.
    """
    containers = [r for r in runtimes if r.workload_type == "container"] or list(runtimes)
    chosen = [r for r in containers if not r.state.cordoned] or containers
    return chosen[0] if chosen else None


def default_version(runtimes: Sequence[RuntimeFacts]) -> RuntimeVersion | None:
    """Return the version of the default runtime, for the node's nodeInfo; None if it has not answered yet."""
    default = default_runtime(runtimes)
    return default.version if default is not None else None


def runtime_handlers(runtimes: Sequence[RuntimeFacts]) -> Iterator[NodeRuntimeHandler]:
    """Yield the handlers that a RuntimeClass may name, with their features (DECISIONS 4).

    They are the empty handler (the default runtime), for each runtime its name and its own handlers, and each handler
    alone: on the first runtime that has it.
    """
    default = default_runtime(runtimes)
    if default is not None:
        yield _handler("", default)
    alone: dict[str, NodeRuntimeHandler] = {}
    for runtime in runtimes:
        name = runtime.name
        yield _handler(name, runtime)
        for handler in runtime.state.handlers:
            yield _handler(f"{name}{HANDLER_MARK}{handler}", runtime, handler)
            alone.setdefault(handler, _handler(handler, runtime, handler))
    yield from (own_handler for name, own_handler in alone.items() if name not in {r.name for r in runtimes})


def node_features(runtimes: Sequence[RuntimeFacts]) -> NodeFeatures | None:
    """Return the node's features, each True if every runtime has it; None until all runtimes have answered."""
    traits = [runtime.traits for runtime in runtimes if runtime.traits is not None]
    if not traits or len(traits) < len(runtimes):
        return None
    return NodeFeatures(
        supplemental_groups_policy=not any(STRICT_GROUPS in trait.refuses for trait in traits)
    )


def _handler(name: str, runtime: RuntimeFacts, handler: str = "") -> NodeRuntimeHandler:
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
    """Return the default labels of every node, and the operator's labels `extra`, which override them."""
    arch = architecture()
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": os.uname().sysname.lower(),
        "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": os.uname().sysname.lower(),
        "beta.kubernetes.io/arch": arch,
        **extra,
    }


def runtime_labels(runtimes: Sequence[RuntimeFacts]) -> dict[str, str]:
    """Return a node label ``runtime.kubeletx.io/NAME`` for each runtime; its value is ready, notready or cordoned.

    RuntimeClasses select nodes by these labels.
    """
    labels = {}
    for runtime in runtimes:
        state = "cordoned" if runtime.state.cordoned else "ready" if runtime.is_ready else "notready"
        labels[RUNTIME_LABEL_PREFIX + runtime.name] = state
    return labels


def runtime_types(runtimes: Sequence[RuntimeFacts]) -> dict[str, str]:
    """Return a node annotation ``workload-type.kubeletx.io/NAME`` for every runtime, even if it never answered."""
    return {RUNTIME_TYPE_PREFIX + runtime.name: runtime.workload_type for runtime in runtimes}


def runtime_versions(runtimes: Sequence[RuntimeFacts]) -> dict[str, str]:
    """Return a node annotation ``version.kubeletx.io/NAME`` for every runtime that has answered at least once."""
    return {
        RUNTIME_VERSION_PREFIX + runtime.name: f"{runtime.version.name} {runtime.version.version}"
        for runtime in runtimes
        if runtime.version is not None
    }


def type_taint(workload_type: str) -> Taint:
    """Return the taint for a workload type that has no ready runtime."""
    effect = "NoSchedule" if workload_type == CONTAINER else "PreferNoSchedule"
    return Taint(key=names.WORKLOAD_TAINT_PREFIX + workload_type, value=names.NO_READY_RUNTIME, effect=effect)


def type_taints(runtimes: Iterable[RuntimeFacts]) -> tuple[Taint, ...]:
    """Return the taints for workload types without a ready runtime, in configured order.

    A type has no taint while one of its runtimes has not been asked for its state yet. A taint repels every pod that
    does not tolerate it, whatever the pod's workload type. Therefore only the default type, container, gets NoSchedule.
    Other types get PreferNoSchedule: a node that cannot run virtual machines still gets containers. The RuntimeClasses
    that ``kubeletx runtime manifests`` prints select nodes by the runtime's label and tolerate the taints of other
    types (DECISIONS 27).
    """
    runtimes = tuple(runtimes)
    unknown = {runtime.workload_type for runtime in runtimes if runtime.state.reason == NEVER_ASKED}
    return tuple(type_taint(type_) for type_ in types_without_runtime(runtimes) if type_ not in unknown)


def top_images(images: Sequence[ContainerImage], limit: int = 50) -> tuple[ContainerImage, ...]:
    """Return the `limit` largest images, with at most five names each. `limit` negative: all images."""
    largest = sorted(images, key=lambda image: (-(image.size_bytes or 0), image.names))
    largest = largest[:limit] if limit >= 0 else largest
    return tuple(msgspec.structs.replace(image, names=image.names[:MAX_IMAGE_NAMES]) for image in largest)


def is_ready(conditions: Sequence[NodeCondition]) -> bool:
    """Return True if the condition Ready is True. Ready must be the last of `conditions`, as in `node_conditions`."""
    return bool(conditions) and conditions[-1].type == "Ready" and conditions[-1].status == "True"
