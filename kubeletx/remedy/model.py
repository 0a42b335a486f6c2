"""Values of node remedy: nodes as the controller sees them, courses of remedies, and NodeFence objects."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from kubeletx.kube.client.resources import Resource
from kubeletx.kube.types.meta import ApiStruct, ListMeta, ObjectMeta, constant
from kubeletx.kube.types.node import NodeAddress, NodeCondition, Taint

NODE_FENCES: Final = Resource("ha.k8s.io", "v1", "nodefences", namespaced=False)
FENCE_PREFIX: Final = "node-fence-"
"""Start of a NodeFence's name; the node's name follows."""
MOST_HISTORY: Final = 50


class FlowStep(enum.Enum):
    """Step of a flow."""

    ISOLATION = "Isolation"
    POWER = "Power-Management"
    RECOVERY = "Recovery"


class FlowStatus(enum.Enum):
    """Status of the present step; FINAL: the flow has ended and the node is back."""

    NEW = "New"
    RUNNING = "Running"
    DONE = "Done"
    ERROR = "Error"
    FINAL = "Final"


class MethodResult(enum.Enum):
    """Result of a method. UNKNOWN: it may have acted or not; it never counts as a fence."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FenceProof(enum.Enum):
    """Fact that a method has proven. STORAGE: the node cannot write to the storage; POWER: the node was off."""

    NONE = ""
    STORAGE = "storage"
    POWER = "power"


# --- what the cluster shows ---


class _SystemInfo(ApiStruct, frozen=True, kw_only=True):
    boot_id: str = ""


class _NodeSpec(ApiStruct, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""


class _NodeStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: _SystemInfo = _SystemInfo()
    volumes_in_use: tuple[str, ...] = ()


class NodeView(ApiStruct, frozen=True, kw_only=True):
    """The parts of a Node that decisions use."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """IP addresses of the node."""
        found = self.status.addresses
        return tuple(item.address for item in found if item.type in ("InternalIP", "ExternalIP"))

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def is_control_plane(self) -> bool:
        labels = self.metadata.labels
        return "node-role.kubernetes.io/control-plane" in labels or "node-role.kubernetes.io/master" in labels

    def condition(self, type_: str) -> NodeCondition | None:
        """Return the condition of this type; None if the node has none."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)


class KernelDump(msgspec.Struct, frozen=True, kw_only=True):
    """State of a dump of a node's memory by its crash kernel.

    `is_running`: it is being written. `seconds`: since its first message; if none runs, since this controller listens.
    """

    is_running: bool = False
    seconds: float = math.inf


class NodeViewList(ApiStruct, frozen=True, kw_only=True):
    """One page of nodes."""

    metadata: ListMeta = ListMeta()
    items: tuple[NodeView, ...] = ()


# --- what the administrator wants ---


class FenceMethod(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a step, in order. `kind`: key of `actions.ACTIONS`: agent, job, builtin, external or plugin.

    `parameters`: for a fence agent, what it gets on standard input. `seconds`: deadline. `proof`: what its success proves.
    `definition`: the pod template of a job, or ``external`` or ``plugin`` of a remedyConfig, as written. `secrets`: a later one overrides an earlier one; with `secrets_optional` they may be missing. `storage`: names of
    PersistentVolumes, drivers or storage classes to which a proof STORAGE applies; empty: all volumes that are not local.
    """

    name: str
    kind: str
    agent: str = ""
    parameters: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    secrets_optional: bool = False
    storage: tuple[str, ...] = ()
    seconds: float = 180.0
    proof: FenceProof = FenceProof.NONE
    definition: Mapping[str, Any] = {}


class RemedyCourse(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy of a threshold, for one node: the methods of each step. `problem`: why it cannot run; empty: it can.

    `period`: seconds after its end until the next remedy begins if the node is still sick. `cleans`: the node's pods are
    released once a proof is there; for a remedy other than ``fence``, its success is the proof, by the administrator's word.
    `kdump`: messages of the node's kernel dump are a proof and delay power management.
    """

    name: str
    period: float = 0.0
    cleans: bool = False
    isolation: tuple[FenceMethod, ...] = ()
    power: tuple[FenceMethod, ...] = ()
    recovery: tuple[FenceMethod, ...] = ()
    kdump: bool = False
    problem: str = ""

    def methods(self, step: FlowStep) -> tuple[FenceMethod, ...]:
        return {
            FlowStep.ISOLATION: self.isolation,
            FlowStep.POWER: self.power,
            FlowStep.RECOVERY: self.recovery,
        }[step]


class RemedySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of ConfigMap ``remedy-settings``. Times in seconds.

    `power_wait`: after isolation, time for which a node stays not Ready before power management. `settle_time`: time
    for which a node may be not Ready after power management. `quiet_time`: time for which a node stays well before recovery.
    `retries`: repeats of a failed step, `retry_wait` apart. `restarts`: repeats of the whole flow.
    `max_unhealthy`: most sick nodes of a cluster (or of a failure domain), a number or a percentage, rounded down but at
    least one if `at_least_one`; with more, no step begins but recovery. `cooldown`: time that a storm must be
    over. `domain_label`: label that names a node's failure domain; empty: none. `one_at_a_time`: at most one flow runs.
    `pause`: nothing is done. `planned_limit`: a planned reboot or upgrade protects a node until it has not been ready for so long.
    `needs_fencing_label`: only nodes with label ``fencing=enabled`` are treated; otherwise as soon as any node has the label.
    `lease_namespace`: of the Leases by which one actor treats a node, such as ``medik8s-leases``; empty: of ``--namespace``.
    `storage_probe`: addresses HOST:PORT; while the controller's host reaches none of them, no step begins; the same while its
    own node has condition `storage_condition`. `kured_daemonset`: NAMESPACE/NAME, whose lock names nodes that are rebooted.
    `max_agents`: most fence agents that run at once. `pods_per_minute`: most pods released; 0: no limit. `respect_budgets`: pods are evicted as their disruption
    budgets allow; with `force_after_power` they are deleted anyway once a power fence is proven. `manual_confirmation`: recovery waits for an annotation. `alarm_count` problems of a node within `alarm_period`
    raise an alarm.
    """

    power_wait: float = 300.0
    settle_time: float = 300.0
    quiet_time: float = 30.0
    retries: int = 2
    retry_wait: float = 30.0
    restarts: int = 1
    max_unhealthy: str = "40%"
    at_least_one: bool = True
    domain_label: str = ""
    cooldown: float = 60.0
    one_at_a_time: bool = False
    pause: bool = False
    planned_limit: float = 1800.0
    needs_fencing_label: bool = False
    lease_namespace: str = ""
    storage_probe: str = ""
    storage_condition: str = ""
    kured_daemonset: str = "kube-system/kured"
    max_agents: int = 20
    pods_per_minute: int = 0
    respect_budgets: bool = True
    force_after_power: bool = True
    manual_confirmation: bool = False
    keeps_daemon_sets: bool = True
    alarm_count: int = 3
    alarm_period: float = 86400.0
    kdump_limit: float = 600.0


# --- what is recorded ---


class FenceOperation(ApiStruct, frozen=True, kw_only=True):
    """Intent of one method, recorded before it acts. `id`: unique; `method`: its place in the step.

    `rest`: seconds for which the method may still act, although its controller is gone.
    """

    id: str
    method: int = 0
    name: str = ""
    rest: float = 0.0


class FlowChange(ApiStruct, frozen=True, kw_only=True):
    """One change of a flow, for people."""

    time: datetime
    step: str = ""
    status: str = ""
    message: str = ""


class FenceFlow(ApiStruct, frozen=True, kw_only=True):
    """State of a flow, in field ``flow`` of its NodeFence. Written with ``step`` in one request.

    `status`: the truth of the NodeFence's ``status``, which is a copy. `reasons`: thresholds that matched. `remedy`: index of
    the present remedy. `waited`: seconds in this step and status, as measured by running controllers; `since`: its
    start by the wall clock, for people. `quiet`: the same for the time for which the node has been well. `method`: index of the
    next method of the step. `operation`: intent of a method that may be acting. `proofs`: proofs so far. `boot_id`: of the
    node when the flow began.
    `fenced`: scopes of the storage that was fenced, see `FenceMethod.storage`; ``*``: all. `fenced_boot`: boot ID of the node when
    it was switched off. `released`: pods were released, by the proofs and scopes `released_for`; `left`: pods of these that wait
    for their disruption budgets. `restarts`: of the flow. `message`: the last result. `before`: the step before recovery.
    `dump`: seconds of the node's kernel dump when a controller last looked; None: none was running.
    `stopped`: by an administrator: only recovery is left. `terminal`: all retries and restarts failed; a person has to help.
    """

    node_uid: str = ""
    configuration: str = ""
    threshold: str = ""
    status: str = constant(FlowStatus.NEW.value)
    reasons: tuple[str, ...] = ()
    remedy: int = 0
    remedy_name: str = ""
    since: datetime | None = None
    waited: float = 0.0
    quiet: float = 0.0
    method: int = 0
    operation: FenceOperation | None = None
    proofs: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    fenced_boot: str = ""
    boot_id: str = ""
    released: bool = False
    released_for: tuple[str, ...] = ()
    left: int = 0
    before: str = ""
    dump: float | None = None
    stopped: bool = False
    terminal: bool = False
    restarts: int = 0
    message: str = ""


class NodeFence(ApiStruct, frozen=True, kw_only=True):
    """Record of a node's flow (ha.k8s.io/v1). `problems`: number of flows by reason, over all time; `alarmed`: last alarm."""

    api_version: str = constant("ha.k8s.io/v1")
    kind: str = constant("NodeFence")
    metadata: ObjectMeta = ObjectMeta()
    node: str = ""
    step: str = constant(FlowStep.ISOLATION.value)
    status: str = ""
    retries: int = 0
    jobs: tuple[str, ...] = ()
    flow: FenceFlow = FenceFlow()
    problems: dict[str, int] = {}
    starts: tuple[datetime, ...] = ()
    history: tuple[FlowChange, ...] = ()

    @property
    def present_step(self) -> FlowStep:
        return FlowStep(self.step)

    @property
    def present_status(self) -> FlowStatus:
        return FlowStatus(self.flow.status)

    @property
    def is_over(self) -> bool:
        return self.flow.status == FlowStatus.FINAL.value

    @property
    def problem(self) -> str:
        """Reason why no controller may go on from this record, such as an edit by hand; empty: it may."""
        flow, name = self.flow, self.metadata.name
        operation = flow.operation or FenceOperation(id="")
        known = {
            "step": (self.step, {step.value for step in FlowStep}),
            "flow.status": (flow.status, {status.value for status in FlowStatus}),
            "flow.before": (flow.before, {"", *(step.value for step in FlowStep)}),
            "node": (self.node, {name.removeprefix(FENCE_PREFIX) or self.node}),
        }
        found = [f"{field} is {value!r}" for field, (value, allowed) in known.items() if value not in allowed]
        found += [
            f"flow.proofs has {each!r}" for each in flow.proofs if each not in {p.value for p in FenceProof}
        ]
        numbers = (flow.remedy, flow.method, flow.waited, flow.quiet, operation.method, operation.rest)
        if min(numbers) < 0:
            found.append("flow has a negative number")
        if not found:
            return ""
        return f"NodeFence {name} cannot be used: {', '.join(found)}; correct it, or delete it"


class NodeFenceList(ApiStruct, frozen=True, kw_only=True):
    """One page of NodeFences."""

    metadata: ListMeta = ListMeta()
    items: tuple[NodeFence, ...] = ()


# --- what a method gives back ---


class RemedyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a method. `proofs`: what it proved. `message`: one line for people, without secrets.

    `storage`: to which a proof STORAGE applies; empty: to that of the method, see `FenceMethod.storage`.
    """

    result: MethodResult
    proofs: tuple[FenceProof, ...] = ()
    storage: tuple[str, ...] = ()
    message: str = ""


class RemedyTask(msgspec.Struct, frozen=True, kw_only=True):
    """One method to carry out for one node. `operation`: its recorded intent.

    `is_repeat`: a controller that is gone may have begun it: the device or the API server is asked before anything is done again.
    """

    node: NodeView
    fence: NodeFence
    step: FlowStep
    method: FenceMethod
    operation: FenceOperation
    is_repeat: bool = False
