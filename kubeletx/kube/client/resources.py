"""URL paths of API objects, by their kind."""

from __future__ import annotations

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One kind of API resource, from which the URL paths of its objects are built.

    `group`: empty for the core group. `plural`: the lower-case name in paths, such as ``pods``. `namespaced`:
    False for a cluster-scoped resource, whose paths have no namespace.
    """

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, of all objects in a namespace (`name` empty), or of all (both empty).

        `subresource`: such as ``status``.
        """
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [prefix]
        if namespace and self.namespaced:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _segment(text: str) -> str:
    return quote(text, safe="")


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
EVENTS = Resource("", "v1", "events")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
SERVICES = Resource("", "v1", "services")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
CERTIFICATE_REQUESTS = Resource("certificates.k8s.io", "v1", "certificatesigningrequests", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
JOBS = Resource("batch", "v1", "jobs")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)
