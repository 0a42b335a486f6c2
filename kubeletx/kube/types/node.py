"""The Node object. Source: core/v1 Node, NodeSpec, NodeStatus."""

from __future__ import annotations

from datetime import datetime

from msgspec import field

from .meta import ApiStruct, ListMeta, ObjectMeta, constant, cut_to_seconds


class Taint(ApiStruct, frozen=True, kw_only=True):
    """Mark of a node that keeps pods away unless they tolerate it.

    `effect`: NoSchedule, PreferNoSchedule or NoExecute.
    """

    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a node, set by operators and controllers."""

    pod_cidr: str | None = None
    pod_cidrs: tuple[str, ...] = ()
    provider_id: str | None = None
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    external_id: str | None = None


class NodeCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of the node. `status`: True, False or Unknown."""

    type: str
    status: str
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "last_heartbeat_time", "last_transition_time")


class NodeAddress(ApiStruct, frozen=True, kw_only=True):
    """One address of the node. `type`: Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class DaemonEndpoint(ApiStruct, frozen=True, kw_only=True):
    """Port of a server on the node; its JSON field is ``Port``, with a capital."""

    port: int = field(name="Port")


class NodeDaemonEndpoints(ApiStruct, frozen=True, kw_only=True):
    """Ports of the node's own servers."""

    kubelet_endpoint: DaemonEndpoint | None = None


class NodeSwapStatus(ApiStruct, frozen=True, kw_only=True):
    """Swap space of the node, in bytes."""

    capacity: int | None = None


class NodeSystemInfo(ApiStruct, frozen=True, kw_only=True):
    """Identity of the node's machine, and the versions of its software."""

    machine_id: str
    system_uuid: str
    boot_id: str
    kernel_version: str
    os_image: str
    container_runtime_version: str
    kubelet_version: str
    kube_proxy_version: str
    operating_system: str
    architecture: str
    swap: NodeSwapStatus | None = None


class ContainerImage(ApiStruct, frozen=True, kw_only=True):
    """Image on the node. `names`: at most five of its tags and digests."""

    names: tuple[str, ...]
    size_bytes: int | None = None


class NodeRuntimeHandlerFeatures(ApiStruct, frozen=True, kw_only=True):
    """Features that one runtime handler supports; None: not reported."""

    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(ApiStruct, frozen=True, kw_only=True):
    """Runtime handler of the node; the empty name is the default handler."""

    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(ApiStruct, frozen=True, kw_only=True):
    """Features that the runtime supports for every pod; None: not reported."""

    supplemental_groups_policy: bool | None = None


class AttachedVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume attached to the node."""

    name: str = ""
    device_path: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a node: its resources, conditions, addresses, software, images and volumes."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    phase: str | None = None
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints | None = None
    node_info: NodeSystemInfo | None = None
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    declared_features: tuple[str, ...] = ()


class Node(ApiStruct, frozen=True, kw_only=True):
    """A node: its specification and its status."""

    api_version: str = constant("v1")
    kind: str = constant("Node")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeList(ApiStruct, frozen=True, kw_only=True):
    """A list of nodes."""

    api_version: str = constant("v1")
    kind: str = constant("NodeList")
    metadata: ListMeta = ListMeta()
    items: tuple[Node, ...] = ()
