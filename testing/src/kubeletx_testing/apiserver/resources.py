"""The built-in resources that the API server double serves, and their properties.

Names, kinds, short names and scopes are those of `kubectl api-resources`. Source: kubernetes,
pkg/registry/*/rest/storage_*.go and the strategies in the same folders.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Json = dict[str, Any]

READ_WRITE: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the API and its properties.

    `subresources`: kind of each subresource, by name. `status_subresource`: writes of the main resource
    ignore the status, and writes of ``/status`` ignore everything else. `counts_generations`: changes of the
    spec increase metadata.generation. `returns_deleted`: DELETE returns the object and not a Status.
    `stored`: False for reviews, which get an answer but are not stored. `needs_version`: a PUT without
    resourceVersion is refused. `custom`: for a custom resource, the served version in its
    CustomResourceDefinition; None for a built-in resource.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: dict[str, str] = {}
    status_subresource: bool = False
    counts_generations: bool = False
    returns_deleted: bool = False
    stored: bool = True
    needs_version: bool = False
    custom: Json | None = None

    @property
    def api_version(self) -> str:
        """The apiVersion of this resource's objects: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """Name of the resource in error messages, such as ``pods`` or ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def base(self) -> str:
        """URL path of the resource's group and version, such as ``/api/v1`` or ``/apis/node.k8s.io/v1``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection; with `name`, of one object or its subresource."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        tail = f"/{name}" if name else ""
        return f"{self.base}{scope}/{self.plural}{tail}" + (f"/{subresource}" if subresource else "")


_POD_SUBRESOURCES: Final = {
    "attach": "PodAttachOptions",
    "binding": "Binding",
    "ephemeralcontainers": "Pod",
    "eviction": "Eviction",
    "exec": "PodExecOptions",
    "log": "Pod",
    "portforward": "PodPortForwardOptions",
    "resize": "Pod",
    "status": "Pod",
}

RESOURCES: Final[tuple[Resource, ...]] = (
    Resource(
        plural="pods",
        kind="Pod",
        short_names=("po",),
        subresources=_POD_SUBRESOURCES,
        status_subresource=True,
        counts_generations=True,
        returns_deleted=True,
    ),
    Resource(
        plural="nodes",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        subresources={"status": "Node", "proxy": "NodeProxyOptions"},
        status_subresource=True,
    ),
    Resource(plural="events", kind="Event", short_names=("ev",)),
    Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    Resource(plural="secrets", kind="Secret"),
    Resource(
        plural="services",
        kind="Service",
        short_names=("svc",),
        subresources={"status": "Service"},
        status_subresource=True,
        returns_deleted=True,
    ),
    Resource(
        plural="serviceaccounts",
        kind="ServiceAccount",
        short_names=("sa",),
        subresources={"token": "TokenRequest"},
        returns_deleted=True,
    ),
    Resource(
        plural="namespaces",
        kind="Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources={"status": "Namespace"},
        status_subresource=True,
        returns_deleted=True,
    ),
    Resource(
        plural="persistentvolumes",
        kind="PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources={"status": "PersistentVolume"},
        status_subresource=True,
        returns_deleted=True,
    ),
    Resource(
        plural="persistentvolumeclaims",
        kind="PersistentVolumeClaim",
        short_names=("pvc",),
        subresources={"status": "PersistentVolumeClaim"},
        status_subresource=True,
        returns_deleted=True,
    ),
    Resource(plural="leases", kind="Lease", group="coordination.k8s.io", needs_version=True),
    Resource(
        plural="jobs",
        kind="Job",
        group="batch",
        subresources={"status": "Job"},
        status_subresource=True,
        counts_generations=True,
    ),
    Resource(
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        group="policy",
        short_names=("pdb",),
        subresources={"status": "PodDisruptionBudget"},
        status_subresource=True,
        counts_generations=True,
        needs_version=True,
    ),
    Resource(
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        group="apiextensions.k8s.io",
        namespaced=False,
        short_names=("crd", "crds"),
        subresources={"status": "CustomResourceDefinition"},
        status_subresource=True,
        counts_generations=True,
        needs_version=True,
    ),
    Resource(
        plural="runtimeclasses",
        kind="RuntimeClass",
        group="node.k8s.io",
        namespaced=False,
        needs_version=True,
    ),
    Resource(
        plural="csinodes",
        kind="CSINode",
        group="storage.k8s.io",
        namespaced=False,
        returns_deleted=True,
        needs_version=True,
    ),
    Resource(
        plural="csidrivers",
        kind="CSIDriver",
        group="storage.k8s.io",
        namespaced=False,
        returns_deleted=True,
        needs_version=True,
    ),
    Resource(
        plural="volumeattachments",
        kind="VolumeAttachment",
        group="storage.k8s.io",
        namespaced=False,
        needs_version=True,
        subresources={"status": "VolumeAttachment"},
        status_subresource=True,
        returns_deleted=True,
    ),
    Resource(
        plural="priorityclasses",
        kind="PriorityClass",
        group="scheduling.k8s.io",
        namespaced=False,
        short_names=("pc",),
        counts_generations=True,
    ),
    Resource(
        plural="certificatesigningrequests",
        kind="CertificateSigningRequest",
        group="certificates.k8s.io",
        namespaced=False,
        short_names=("csr",),
        subresources={"status": "CertificateSigningRequest", "approval": "CertificateSigningRequest"},
        status_subresource=True,
    ),
    Resource(
        plural="tokenreviews",
        kind="TokenReview",
        group="authentication.k8s.io",
        namespaced=False,
        stored=False,
    ),
    Resource(
        plural="subjectaccessreviews",
        kind="SubjectAccessReview",
        group="authorization.k8s.io",
        namespaced=False,
        stored=False,
    ),
    Resource(
        plural="selfsubjectaccessreviews",
        kind="SelfSubjectAccessReview",
        group="authorization.k8s.io",
        namespaced=False,
        stored=False,
    ),
)

BY_PATH: Final = {(of.group, of.version, of.plural): of for of in RESOURCES}
"""Built-in resources by (group, version, plural name). `catalog.Catalog` finds custom resources too."""
_BY_PLURAL: Final = {of.plural: of for of in RESOURCES}


def resource(plural: str) -> Resource:
    """Return the built-in resource with this plural name, such as ``pods``.

    Raises KeyError if there is no such resource.
    """
    return _BY_PLURAL[plural]
