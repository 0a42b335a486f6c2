"""Builds the environment variables that describe services (docs/kubelet-parity.md, row E2).

    web, port 80/TCP at 10.0.0.7 ─► WEB_SERVICE_HOST, WEB_SERVICE_PORT, WEB_SERVICE_PORT_<NAME>,
                                    WEB_PORT, WEB_PORT_80_TCP, ..._PROTO, ..._PORT, ..._ADDR

Source: kubelet, pkg/kubelet/envvars/envvars.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeletx.api import ClusterService

MASTER_NAMESPACE = "default"
MASTER_SERVICES = frozenset({"kubernetes"})


def service_variables(services: Iterable[ClusterService], namespace: str, *, links: bool) -> dict[str, str]:
    """Return the service variables for a pod in `namespace`.

    They always include service default/kubernetes. `links`: include all services in `namespace` (`enableServiceLinks`);
    one with the name ``kubernetes`` then replaces default/kubernetes.
    """
    chosen: dict[str, ClusterService] = {}
    for service in sorted(services, key=lambda one: one.name):
        is_masters = service.namespace == MASTER_NAMESPACE and service.name in MASTER_SERVICES
        if links and service.namespace == namespace:
            chosen[service.name] = service
        elif is_masters:
            chosen.setdefault(service.name, service)
    return {name: value for service in chosen.values() for name, value in _variables(service)}


def _variables(service: ClusterService) -> Iterator[tuple[str, str]]:
    if not service.ports:
        return
    prefix, address = _name(service.name), service.address
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(service.ports[0][1])
    for name, number, _ in service.ports:
        if name:
            yield f"{prefix}_SERVICE_PORT_{_name(name)}", str(number)
    host = f"[{address}]" if ":" in address else address
    for index, (_, number, protocol) in enumerate(service.ports):
        url = f"{protocol.lower()}://{host}:{number}"
        if index == 0:
            yield f"{prefix}_PORT", url
        port = f"{prefix}_PORT_{number}_{protocol.upper()}"
        yield port, url
        yield f"{port}_PROTO", protocol.lower()
        yield f"{port}_PORT", str(number)
        yield f"{port}_ADDR", address


def _name(text: str) -> str:
    return text.replace("-", "_").upper()
