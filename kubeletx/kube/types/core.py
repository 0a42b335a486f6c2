"""The Pod object. The types of all its parts can be imported from here. Source: core/v1 Pod, PodSpec, PodList.

`PodSpec.virtual_machine`, `vpc`, `nics` and `runtime_service_name` are extensions (of the multi-runtime design, Arktos)
that an ordinary API server does not have.
"""

from __future__ import annotations

from typing import TypeAlias

from kubeletx.api.identity import PodUid

from .container import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    ContainerPort,
    ContainerResizePolicy,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceClaim,
    ResourceFieldSelector,
    ResourceRequirements,
    SecretEnvSource,
    SecretKeySelector,
    VolumeDevice,
    VolumeMount,
)
from .handlers import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    HTTPHeader,
    IntOrString,
    Lifecycle,
    LifecycleHandler,
    Probe,
    ProbeHandler,
    SleepAction,
    TCPSocketAction,
)
from .machine import (
    Nic,
    VirtualMachine,
    VirtualMachineResizePolicy,
    VirtualMachineStatus,
)
from .meta import (
    ApiStruct,
    LabelSelector,
    LabelSelectorRequirement,
    ListMeta,
    LocalObjectReference,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    constant,
)
from .scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from .security import (
    AppArmorProfile,
    Capabilities,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
    Sysctl,
    WindowsSecurityContextOptions,
)
from .status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    HostIP,
    ImageVolumeStatus,
    LinuxContainerUser,
    PodCondition,
    PodIP,
    PodResourceClaimStatus,
    PodStatus,
    ResourceHealth,
    ResourceStatus,
    VolumeMountStatus,
    VolumeStatus,
)
from .volumes import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CephFSVolumeSource,
    CinderVolumeSource,
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    CSIVolumeSource,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    FCVolumeSource,
    FlexVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource,
    GlusterfsVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    ISCSIVolumeSource,
    KeyToPath,
    NFSVolumeSource,
    PersistentVolumeClaimVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PodCertificateProjection,
    PortworxVolumeSource,
    ProjectedVolumeSource,
    QuobyteVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    StorageOSVolumeSource,
    Volume,
    VolumeProjection,
    VolumeSource,
    VsphereVirtualDiskVolumeSource,
)


class PodDNSConfigOption(ApiStruct, frozen=True, kw_only=True):
    """One entry of the options line in the pod's resolv.conf.

    `name`: name of the option, such as ndots. `value`: its value; None: it has none.
    """

    name: str = ""
    value: str | None = None


class PodDNSConfig(ApiStruct, frozen=True, kw_only=True):
    """Resolver settings of a pod, added to the settings that its dnsPolicy gives; dnsPolicy ``None`` gives none.

    `nameservers`: addresses of further servers. `searches`: further domains in which names are searched. `options`:
    options of the resolver.
    """

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(ApiStruct, frozen=True, kw_only=True):
    """One extra line of the pod's hosts file. `ip`: the address. `hostnames`: names of the address."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodReadinessGate(ApiStruct, frozen=True, kw_only=True):
    """Extra condition of the pod that must be True before the pod is ready. `condition_type`: its type."""

    condition_type: str = ""


class PodOS(ApiStruct, frozen=True, kw_only=True):
    """Operating system of the pod; `name` linux or windows."""

    name: str = ""


class PodSchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """Gate that a controller must remove before the pod is scheduled."""

    name: str = ""


class PodSchedulingGroup(ApiStruct, frozen=True, kw_only=True):
    """Group of pods with which this pod is scheduled."""

    pod_group_name: str | None = None


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """Claim of the pod for devices, by an existing ResourceClaim or a template for a new one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """Taint that this pod tolerates. `operator`: Exists, Equal, Lt or Gt; None: Equal.

    `toleration_seconds`: how long it tolerates a taint with effect NoExecute; None: without end. `key`: key of the
    taint; None: every taint. `value`: value of the taint, for Equal. `effect`: NoSchedule, PreferNoSchedule or
    NoExecute; None: all.
    """

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a pod. The last four fields are extensions of core/v1.

    `volumes`: directories and devices that containers can mount. `init_containers`: run before the others, each after
    the one before it has ended; a sidecar keeps running. `containers`: containers of the pod; at least one, unless it
    has a machine. `ephemeral_containers`: containers added for debugging while the pod runs. `restart_policy`:
    Always, OnFailure or Never: whether ended containers run again; default Always.
    `termination_grace_period_seconds`: time from the stop signal until containers are killed; default 30.
    `active_deadline_seconds`: longest time that the pod may run before it fails; None: no limit. `dns_policy`:
    ClusterFirst, ClusterFirstWithHostNet, Default or None: where names are resolved; default ClusterFirst.
    `node_selector`: labels of the nodes on which it may run. `service_account_name`: account whose token the
    containers get. `service_account`: older name of `service_account_name`. `automount_service_account_token`: False:
    containers get no token. `node_name`: node that runs the pod. `host_network`: use the node's network instead of
    one of its own. `host_pid`: see the processes of the node. `host_ipc`: use the shared memory and semaphores of the
    node. `share_process_namespace`: containers see each other's processes. `image_pull_secrets`: secrets with logins
    for image registries. `hostname`: host name of the pod; None: its name. `subdomain`: domain of the pod below its
    namespace. `scheduler_name`: scheduler that chooses the node; no effect on the node. `tolerations`: taints of a
    node in spite of which it runs there. `host_aliases`: further lines of the hosts file. `priority_class_name`:
    class that gives the priority. `priority`: a pod of higher priority may take the place of others; set by the
    cluster. `readiness_gates`: further conditions that must be True before it is ready. `runtime_class_name`:
    RuntimeClass, which names the handler that runs it. `enable_service_links`: False: no environment variables for
    services. `preemption_policy`: PreemptLowerPriority or Never. `overhead`: resources of the sandbox itself, by
    name. `topology_spread_constraints`: how pods are spread over places; no effect on the node.
    `set_hostname_as_fqdn`: the host name includes subdomain and domain. `host_users`: False: the pod has user IDs of
    its own. `scheduling_gates`: what must be removed before it is scheduled; no effect on the node. `resources`: CPU
    and memory of all containers together. `hostname_override`: host name in place of all others. `vpc`: virtual
    private cloud of the machine's interfaces. `nics`: network interfaces of the machine. `runtime_service_name`:
    runtime that runs the pod; None: the default of its type.
    """

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    dns_policy: str | None = None
    node_selector: dict[str, str] = {}
    service_account_name: str | None = None
    service_account: str | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str | None = None
    subdomain: str | None = None
    affinity: Affinity | None = None
    scheduler_name: str | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    priority_class_name: str | None = None
    priority: int | None = None
    dns_config: PodDNSConfig | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: dict[str, str] = {}
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    set_hostname_as_fqdn: bool | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    hostname_override: str | None = None
    scheduling_group: PodSchedulingGroup | None = None
    virtual_machine: VirtualMachine | None = None
    vpc: str | None = None
    nics: tuple[Nic, ...] = ()
    runtime_service_name: str | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod: its desired state (`spec`) and its observed state (`status`)."""

    api_version: str = constant("v1")
    kind: str = constant("Pod")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> PodUid:
        """Identity of the pod; a later pod of the same name has another UID."""
        return PodUid(self.metadata.uid)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the pod; never empty once defaults are set."""
        return self.metadata.namespace

    @property
    def ref(self) -> str:
        """``namespace/name``, as log lines and messages write it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class PodList(ApiStruct, frozen=True, kw_only=True):
    """A list of pods."""

    api_version: str = constant("v1")
    kind: str = constant("PodList")
    metadata: ListMeta = ListMeta()
    items: tuple[Pod, ...] = ()


PodUnit: TypeAlias = Container | VirtualMachine
"""Workload of a pod that its runtime runs as one unit: a container or the machine."""
AnyUnit: TypeAlias = PodUnit | EphemeralContainer
"""A `PodUnit`, or an ephemeral (debug) container."""

__all__ = [
    "AWSElasticBlockStoreVolumeSource",
    "Affinity",
    "AnyUnit",
    "ApiStruct",
    "AppArmorProfile",
    "AzureDiskVolumeSource",
    "AzureFileVolumeSource",
    "CSIVolumeSource",
    "Capabilities",
    "CephFSVolumeSource",
    "CinderVolumeSource",
    "ClusterTrustBundleProjection",
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "Container",
    "ContainerPort",
    "ContainerResizePolicy",
    "ContainerRestartRule",
    "ContainerRestartRuleOnExitCodes",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "ContainerUser",
    "DownwardAPIProjection",
    "DownwardAPIVolumeFile",
    "DownwardAPIVolumeSource",
    "EmptyDirVolumeSource",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "EphemeralContainer",
    "EphemeralVolumeSource",
    "ExecAction",
    "FCVolumeSource",
    "FileKeySelector",
    "FlexVolumeSource",
    "FlockerVolumeSource",
    "GCEPersistentDiskVolumeSource",
    "GRPCAction",
    "GitRepoVolumeSource",
    "GlusterfsVolumeSource",
    "HTTPGetAction",
    "HTTPHeader",
    "HostAlias",
    "HostIP",
    "HostPathVolumeSource",
    "ISCSIVolumeSource",
    "ImageVolumeSource",
    "ImageVolumeStatus",
    "IntOrString",
    "KeyToPath",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Lifecycle",
    "LifecycleHandler",
    "LinuxContainerUser",
    "ListMeta",
    "LocalObjectReference",
    "NFSVolumeSource",
    "Nic",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolumeClaimVolumeSource",
    "PhotonPersistentDiskVolumeSource",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodCertificateProjection",
    "PodCondition",
    "PodDNSConfig",
    "PodDNSConfigOption",
    "PodIP",
    "PodList",
    "PodOS",
    "PodReadinessGate",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGate",
    "PodSchedulingGroup",
    "PodSecurityContext",
    "PodSpec",
    "PodStatus",
    "PodUnit",
    "PortworxVolumeSource",
    "PreferredSchedulingTerm",
    "Probe",
    "ProbeHandler",
    "ProjectedVolumeSource",
    "QuobyteVolumeSource",
    "RBDVolumeSource",
    "ResourceClaim",
    "ResourceFieldSelector",
    "ResourceHealth",
    "ResourceRequirements",
    "ResourceStatus",
    "SELinuxOptions",
    "ScaleIOVolumeSource",
    "SeccompProfile",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "SecretVolumeSource",
    "SecurityContext",
    "ServiceAccountTokenProjection",
    "SleepAction",
    "StorageOSVolumeSource",
    "Sysctl",
    "TCPSocketAction",
    "Toleration",
    "TopologySpreadConstraint",
    "VirtualMachine",
    "VirtualMachineResizePolicy",
    "VirtualMachineStatus",
    "Volume",
    "VolumeDevice",
    "VolumeMount",
    "VolumeMountStatus",
    "VolumeProjection",
    "VolumeSource",
    "VolumeStatus",
    "VsphereVirtualDiskVolumeSource",
    "WeightedPodAffinityTerm",
    "WindowsSecurityContextOptions",
]
