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
    """One entry of the options line in the pod's resolv.conf."""

    name: str = ""
    value: str | None = None


class PodDNSConfig(ApiStruct, frozen=True, kw_only=True):
    """Resolver settings of a pod, added to the settings that its dnsPolicy gives; dnsPolicy ``None`` gives none."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(ApiStruct, frozen=True, kw_only=True):
    """One extra line of the pod's hosts file."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodReadinessGate(ApiStruct, frozen=True, kw_only=True):
    """Extra condition of the pod that must be True before the pod is ready."""

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

    `toleration_seconds`: how long it tolerates a taint with effect NoExecute; None: without end.
    """

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a pod. The last four fields are extensions of core/v1; see the module's docstring."""

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
