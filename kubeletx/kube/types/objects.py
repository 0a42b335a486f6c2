"""Objects that pods refer to: config maps, secrets, services, claims and volumes, runtime classes, token requests.

Source: core/v1, node/v1, authentication/v1. The types have only the fields that a node reads.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import field

from .core import ResourceRequirements, Toleration
from .meta import ApiStruct, ObjectMeta, constant
from .scheduling import NodeSelector
from .volumes import HostPathVolumeSource, NFSVolumeSource


class ConfigMap(ApiStruct, frozen=True, kw_only=True):
    """Config map: settings as text in `data`, or as bytes in `binary_data`."""

    api_version: str = constant("v1")
    kind: str = constant("ConfigMap")
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
    immutable: bool = False


class Secret(ApiStruct, frozen=True, kw_only=True):
    """Secret: keys and values as bytes in `data`. The repr shows only the keys."""

    api_version: str = constant("v1")
    kind: str = constant("Secret")
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class ServiceAccount(ApiStruct, frozen=True, kw_only=True):
    """Service account: the identity of a pod towards the API server."""

    api_version: str = constant("v1")
    kind: str = constant("ServiceAccount")
    metadata: ObjectMeta = ObjectMeta()


class ServicePort(ApiStruct, frozen=True, kw_only=True):
    """One port of a service."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a service. `cluster_ip`: empty, or the text ``None``, if the service has no address."""

    cluster_ip: str = ""
    type: str = ""
    ports: tuple[ServicePort, ...] = ()


class Service(ApiStruct, frozen=True, kw_only=True):
    """Service: a stable name and address for a set of pods."""

    api_version: str = constant("v1")
    kind: str = constant("Service")
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a claim. `volume_name`: persistent volume that the claim is bound to; empty: not bound yet.

    `resources`: the request ``storage`` is the size. `selector`, `data_source`, `data_source_ref`: JSON values.
    """

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    selector: Any = None
    data_source: Any = None
    data_source_ref: Any = None


class ClaimCondition(ApiStruct, frozen=True, kw_only=True):
    """Condition of a claim. `type`: such as FileSystemResizePending."""

    type: str = ""
    status: str = ""


class ClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a claim. `phase`: Pending, Bound or Lost. `capacity`: resource name → size that pods can use."""

    phase: str = ""
    capacity: dict[str, str] = {}
    conditions: tuple[ClaimCondition, ...] = ()


class PersistentVolumeClaim(ApiStruct, frozen=True, kw_only=True):
    """Claim: a pod's request for storage, which is bound to a persistent volume."""

    api_version: str = constant("v1")
    kind: str = constant("PersistentVolumeClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class LocalVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Directory or device of one node, as the source of a persistent volume."""

    path: str = ""
    fs_type: str | None = None


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Nodes that can reach the volume."""

    required: NodeSelector | None = None


class ClaimReference(ApiStruct, frozen=True, kw_only=True):
    """Claim that a persistent volume is bound to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a persistent volume; exactly one source is set.

    Sources that the agent does not mount itself are mappings of JSON values, for volume drivers.
    """

    local: LocalVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cephfs: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    flex_volume: dict[str, Any] | None = None
    flocker: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    glusterfs: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    photon_persistent_disk: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    quobyte: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    scale_io: dict[str, Any] | None = None
    storageos: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    storage_class_name: str = ""
    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(ApiStruct, frozen=True, kw_only=True):
    """Persistent volume: storage of the cluster that a claim can be bound to."""

    api_version: str = constant("v1")
    kind: str = constant("PersistentVolume")
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class Overhead(ApiStruct, frozen=True, kw_only=True):
    """Resources that each pod of a runtime class needs in addition to its containers."""

    pod_fixed: dict[str, str] = {}


class Scheduling(ApiStruct, frozen=True, kw_only=True):
    """Nodes that pods of a runtime class may run on."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(ApiStruct, frozen=True, kw_only=True):
    """Runtime class: the name by which a pod selects a runtime handler."""

    api_version: str = constant("node.k8s.io/v1")
    kind: str = constant("RuntimeClass")
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class BoundObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Object to which a token is bound. The token becomes invalid when that object is deleted."""

    api_version: str = constant("v1")
    kind: str = constant("Pod")
    name: str = ""
    uid: str = ""


class TokenRequestSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a requested token. `audiences` empty: the API server's own audience."""

    audiences: tuple[str, ...] = ()
    expiration_seconds: int = field(default_factory=lambda: 3600)
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(ApiStruct, frozen=True, kw_only=True):
    """The issued token and its expiry. The repr hides the token."""

    token: str = ""
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp})"


class TokenRequest(ApiStruct, frozen=True, kw_only=True):
    """Request for a token of a service account, with the answer in its status."""

    api_version: str = constant("authentication.k8s.io/v1")
    kind: str = constant("TokenRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()
