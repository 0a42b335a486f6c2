"""Volumes of a pod and all their sources. Source: core/v1 Volume.

The source is a flat optional field of `Volume`, as in JSON: ``volume.empty_dir``, ``volume.host_path``.
"""

from __future__ import annotations

from typing import Any

from .container import ObjectFieldSelector, ResourceFieldSelector
from .meta import ApiStruct, LabelSelector, LocalObjectReference


class HostPathVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """File or directory of the node.

    `type`: kind of file that must exist at the path, or is created there. `path`: path on the node.
    """

    path: str = ""
    type: str | None = None


class EmptyDirVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Empty directory that exists as long as the pod.

    `medium`: empty for the node's disk, or Memory. `size_limit`: the pod is evicted when it holds more.
    """

    medium: str | None = None
    size_limit: str | None = None


class GCEPersistentDiskVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Google Compute Engine disk."""

    pd_name: str | None = None
    fs_type: str | None = None
    partition: int | None = None
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An AWS disk."""

    volume_id: str | None = None
    fs_type: str | None = None
    partition: int | None = None
    read_only: bool = False


class GitRepoVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A git repository, cloned at mount (deprecated upstream)."""

    repository: str = ""
    revision: str | None = None
    directory: str | None = None


class KeyToPath(ApiStruct, frozen=True, kw_only=True):
    """One key of a config map or secret, written to `path` in the volume.

    `mode` None: the volume's default mode. `path`: path of the file in the volume.
    """

    key: str = ""
    path: str = ""
    mode: int | None = None


class SecretVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Files from a secret, one for each key.

    `items`: only these keys; empty: all. `secret_name`: name of the secret.
    """

    secret_name: str | None = None
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class NFSVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An NFS export. `server`: name or address of the server. `path`: path that the server exports."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class ISCSIVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An iSCSI disk."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    iscsi_interface: str | None = None
    fs_type: str | None = None
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: LocalObjectReference | None = None
    initiator_name: str | None = None


class GlusterfsVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Glusterfs volume."""

    endpoints: str = ""
    path: str = ""
    read_only: bool = False


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A persistent volume claim in the pod's namespace. `claim_name`: name of the claim."""

    claim_name: str = ""
    read_only: bool = False


class RBDVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Ceph block device."""

    monitors: tuple[str, ...] = ()
    image: str | None = None
    fs_type: str | None = None
    pool: str | None = None
    user: str | None = None
    keyring: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlexVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A volume that an executable driver on the node provides.

    `driver`: name of the driver, such as vendor/driver. `options`: values that the driver gets.
    """

    driver: str = ""
    fs_type: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False
    options: dict[str, str] = {}


class CinderVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """OpenStack Cinder disk."""

    volume_id: str | None = None
    fs_type: str | None = None
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class CephFSVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Ceph file system."""

    monitors: tuple[str, ...] = ()
    path: str | None = None
    user: str | None = None
    secret_file: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlockerVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Flocker dataset."""

    dataset_name: str | None = None
    dataset_uuid: str | None = None


class DownwardAPIVolumeFile(ApiStruct, frozen=True, kw_only=True):
    """One file with a field of the pod or a resource of a container.

    `mode`: permission bits; None: the volume's default mode.
    """

    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardAPIVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Files with fields of the pod or resources of its containers."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: int | None = None


class FCVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Fibre Channel disk."""

    target_wwns: tuple[str, ...] = ()
    lun: int | None = None
    fs_type: str | None = None
    read_only: bool = False
    wwids: tuple[str, ...] = ()


class AzureFileVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An Azure file share."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False


class ConfigMapVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Files from a config map, one for each key. `items`: only these keys; empty: all."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class VsphereVirtualDiskVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A vSphere disk."""

    volume_path: str | None = None
    fs_type: str | None = None
    storage_policy_name: str | None = None
    storage_policy_id: str | None = None


class QuobyteVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Quobyte volume."""

    registry: str | None = None
    volume: str | None = None
    read_only: bool = False
    user: str | None = None
    group: str | None = None
    tenant: str | None = None


class AzureDiskVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An Azure disk."""

    disk_name: str | None = None
    disk_uri: str | None = None
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool = False
    kind: str | None = None


class PhotonPersistentDiskVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Photon Controller disk."""

    pd_id: str | None = None
    fs_type: str | None = None


class SecretProjection(ApiStruct, frozen=True, kw_only=True):
    """Files from a secret, inside a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardAPIProjection(ApiStruct, frozen=True, kw_only=True):
    """Files with fields of the pod or resources of its containers, inside a projected volume."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ConfigMapProjection(ApiStruct, frozen=True, kw_only=True):
    """Files from a config map, inside a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ServiceAccountTokenProjection(ApiStruct, frozen=True, kw_only=True):
    """File with a service account token, inside a projected volume.

    `audience` None: the API server's own audience. `expiration_seconds`: life of the token; it is renewed before;
    default 3600.
    """

    audience: str | None = None
    expiration_seconds: int | None = None
    path: str = ""


class ClusterTrustBundleProjection(ApiStruct, frozen=True, kw_only=True):
    """File with the CA certificates of ClusterTrustBundle objects, inside a projected volume."""

    name: str = ""
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""


class PodCertificateProjection(ApiStruct, frozen=True, kw_only=True):
    """Private key and certificate chain of the pod, as files inside a projected volume."""

    signer_name: str | None = None
    key_type: str | None = None
    max_expiration_seconds: int | None = None
    credential_bundle_path: str | None = None
    key_path: str | None = None
    certificate_chain_path: str | None = None
    user_annotations: dict[str, str] = {}


class VolumeProjection(ApiStruct, frozen=True, kw_only=True):
    """One source of a projected volume; exactly one field is set."""

    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = None
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Files of several sources in one directory. `sources`: what the directory contains."""

    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class PortworxVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A Portworx volume."""

    volume_id: str | None = None
    fs_type: str | None = None
    read_only: bool = False


class ScaleIOVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A ScaleIO volume."""

    gateway: str | None = None
    system: str | None = None
    secret_ref: LocalObjectReference | None = None
    ssl_enabled: bool | None = None
    protection_domain: str | None = None
    storage_pool: str | None = None
    storage_mode: str | None = None
    volume_name: str | None = None
    fs_type: str | None = None
    read_only: bool = False


class StorageOSVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A StorageOS volume."""

    volume_name: str | None = None
    volume_namespace: str | None = None
    fs_type: str | None = None
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class CSIVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A volume that a CSI driver makes for this pod."""

    driver: str = ""
    read_only: bool = False
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


class EphemeralVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Persistent volume claim that is created from a template, only for this pod.

    `volume_claim_template`: metadata and spec of the claim.
    """

    volume_claim_template: dict[str, Any] | None = None


class ImageVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """The content of an OCI image or artifact.

    `reference`: name of the image. `pull_policy`: Always, IfNotPresent or Never.
    """

    reference: str | None = None
    pull_policy: str | None = None


class VolumeSource(ApiStruct, frozen=True, kw_only=True):
    """Source of a volume; exactly one field is set."""

    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    git_repo: GitRepoVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    glusterfs: GlusterfsVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    flex_volume: FlexVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    cephfs: CephFSVolumeSource | None = None
    flocker: FlockerVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = None
    fc: FCVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    scale_io: ScaleIOVolumeSource | None = None
    storageos: StorageOSVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None


class Volume(VolumeSource, frozen=True, kw_only=True):
    """A named volume that containers of the pod mount. `name`: name by which containers refer to it."""

    name: str = ""
