"""Output of ``kubeletx runtime manifests -o configmap``: one ConfigMap that lists the node's runtimes.

The list is YAML under the key `SERVICES`, in the configured order of the runtimes; the default of a workload type is
its first runtime that is not cordoned. The list has nothing that changes by itself, such as readiness, so that applying
it again changes nothing. Source: the multi-runtime design, "Advertise the supported runtime services".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import ConfigMap
from kubeletx.server.views import RuntimeDetail

from ..output.printers import to_yaml

SERVICES: Final = "runtimes.yaml"
NODE: Final = "node"
LABELS: Final = {"app.kubernetes.io/name": "kubeletx", "app.kubernetes.io/component": "runtime-services"}
"""Labels that select the ConfigMaps of all nodes."""


class ServiceReport(NamedTuple):
    """ConfigMap that lists the node's runtimes. `notes`: warnings about runtimes whose entries are incomplete."""

    config_map: ConfigMap
    notes: tuple[str, ...]


def runtime_services(details: Sequence[RuntimeDetail], node_name: str) -> ServiceReport:
    """Make the ConfigMap that lists a node's runtimes. It has no namespace, so that the user can choose one."""
    notes = [
        f"{detail.runtime.name} never answered, so its features and handlers are not known"
        for detail in details
        if not detail.traits
    ]
    config_map = ConfigMap(
        metadata=ObjectMeta(name=f"runtime-services.{node_name}", labels=LABELS),
        data={NODE: node_name, SERVICES: to_yaml([_service(detail) for detail in details]) + "\n"},
    )
    return ServiceReport(config_map, tuple(notes))


def _service(detail: RuntimeDetail) -> dict[str, Any]:
    runtime = detail.runtime
    fields: dict[str, Any] = {
        "name": runtime.name,
        "workloadType": runtime.workload_type,
        "kind": runtime.kind,
        "isDefault": runtime.default,
        "features": sorted(name for name, has in detail.capabilities.items() if has),
        "handlers": sorted(detail.handlers),
    }
    images = runtime.image_service
    if images is not None:
        fields["imageService"] = {
            "name": images.name,
            "workloadType": images.workload_type,
            "isDefault": images.is_default,
        }
    return fields
