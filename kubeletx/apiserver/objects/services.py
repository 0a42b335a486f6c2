"""`ServiceSink`: all services of the cluster, for the service environment variables of containers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kubeletx.api import ClusterService
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import Service


class ServiceSink:
    """Keeps the services that have a cluster IP, by namespace and name. Implements `ReflectorSink` of services."""

    def __init__(self) -> None:
        self._services: defaultdict[str, dict[str, ClusterService]] = defaultdict(dict)

    def of(self, namespace: str) -> tuple[ClusterService, ...]:
        """Return the services of one namespace, sorted by name."""
        found = self._services.get(namespace, {})
        return tuple(found[name] for name in sorted(found))

    def replace(self, items: Sequence[Service], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all services. A service that cannot be decoded stays as it was."""
        before, self._services = self._services, defaultdict(dict)
        for meta in unreadable:
            if (known := before[meta.namespace].get(meta.name)) is not None:
                self._services[meta.namespace][meta.name] = known
        for item in items:
            self.put(item)

    def put(self, item: Service) -> None:
        """Add or replace the service; one without a cluster IP is removed."""
        spec, meta = item.spec, item.metadata
        if spec.cluster_ip in ("", "None"):
            self.drop(item)
            return
        self._services[meta.namespace][meta.name] = ClusterService(
            name=meta.name,
            namespace=meta.namespace,
            address=spec.cluster_ip,
            ports=tuple((port.name, port.port, port.protocol or "TCP") for port in spec.ports),
        )

    def drop(self, item: Service) -> None:
        there = self._services.get(item.metadata.namespace, {})
        there.pop(item.metadata.name, None)
        if not there:
            self._services.pop(item.metadata.namespace, None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the service as it was last decoded."""
