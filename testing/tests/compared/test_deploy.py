"""Manifests in deploy/ are taken by a real API server as they stand; nothing is kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubeletx.cli.commands.runtime_manifests import runtime_classes
from kubeletx.server.views import RuntimeDetail
from kubeletx_testing.apiserver import ApiClient
from kubeletx_testing.lab.kube_apiserver import KubeApiServer, missing_binaries

Json = dict[str, Any]
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(missing_binaries()), reason=missing_binaries()),
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    """The administrator of a real API server."""
    with KubeApiServer(tmp_path_factory.mktemp("deploy")) as one:
        for name in ("kubeletx-trial", "kubeletx-storage"):
            one.admin.create("namespaces", {"metadata": {"name": name}})
        yield one.admin


def manifests() -> list[Json]:
    found = [one for path in sorted(DEPLOY.rglob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    return [one for one in found if one and one["kind"] != "Namespace"]


@pytest.mark.parametrize("value", manifests(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_an_api_server_takes_it(real: ApiClient, value: Json) -> None:
    path = PATHS[value["kind"]].format(namespace=value["metadata"].get("namespace", ""))
    made = real.ask("POST", path, value, query=STRICT)
    assert made["metadata"]["name"] == value["metadata"]["name"]


def test_an_api_server_takes_printed_runtime_classes(real: ApiClient) -> None:
    view = {
        "name": "kvm",
        "workloadType": "vm",
        "kind": "libvirt",
        "url": "qemu:///system",
        "status": "Ready",
    }
    detail = msgspec.convert(
        {
            "runtime": {**view, "since": "2030-01-01T00:00:00Z"},
            "traits": {"memory_overhead_bytes": 192 << 20, "cpu_overhead_millicores": 10},
            "handlers": ["one", "two"],
        },
        RuntimeDetail,
    )
    for one in runtime_classes([detail]).classes:
        value = msgspec.json.decode(msgspec.json.encode(one))
        made = real.ask("POST", PATHS["RuntimeClass"], value, query=STRICT)
        assert made["overhead"]["podFixed"] == {"cpu": "10m", "memory": "192Mi"}
        assert made["scheduling"]["nodeSelector"] == {"runtime.kubeletx.io/kvm": "ready"}
