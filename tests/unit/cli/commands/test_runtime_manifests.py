"""``kubeletx runtime manifests``: one RuntimeClass for each runtime and handler, or one list of the runtimes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from click.testing import Result

from kubeletx.cli.commands.runtime_manifests import runtime_classes
from kubeletx.cli.commands.runtime_services import runtime_services
from kubeletx.cli.output.printers import to_yaml
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import Node
from kubeletx.server.views import ImageServiceView, RuntimeDetail, RuntimeView
from kubeletx_testing.apiserver import ApiServerDouble

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def detail(name: str, type_: str = "container", **fields: Any) -> RuntimeDetail:
    view = RuntimeView(name=name, workload_type=type_, kind="k", url="unix:///x", status="Ready", since=NOW)
    return RuntimeDetail(runtime=view, **{"traits": {"memory_overhead_bytes": 0}, **fields})


def test_a_class_is_called_as_its_runtime_and_selects_nodes_where_it_is_ready() -> None:
    (one,) = runtime_classes([detail("alpha")]).classes
    assert (one.metadata.name, one.handler, one.overhead) == ("alpha", "alpha", None)
    assert one.scheduling is not None
    assert one.scheduling.node_selector == {"runtime.kubeletx.io/alpha": "ready"}


def test_every_one_of_several_handlers_has_a_class() -> None:
    found = runtime_classes([detail("alpha", handlers=("kata", "runc")), detail("beta", handlers=("runc",))])
    assert [one.handler for one in found.classes] == ["alpha", "alpha--kata", "alpha--runc", "beta"]


def test_a_class_tolerates_what_concerns_other_types_only() -> None:
    containers, machines = runtime_classes([detail("a"), detail("v", "vm")]).classes
    assert containers.scheduling is not None
    assert machines.scheduling is not None
    assert [one.key for one in containers.scheduling.tolerations] == ["workload.kubeletx.io/vm"]
    assert [one.key for one in machines.scheduling.tolerations] == ["workload.kubeletx.io/container"]


def test_overhead_is_the_plugins_figure() -> None:
    traits = {"cpu_overhead_millicores": 50, "memory_overhead_bytes": 192 << 20}
    (one,) = runtime_classes([detail("v", "vm", traits=traits)]).classes
    assert one.overhead is not None
    assert one.overhead.pod_fixed == {"cpu": "50m", "memory": "192Mi"}


def test_a_handler_that_no_class_can_name_is_reported_and_left_out() -> None:
    found = runtime_classes([detail("a", handlers=("run_c", "runc"))])
    assert [one.handler for one in found.classes] == ["a", "a--runc"]
    assert "'a--run_c' cannot be the name of a class" in found.notes[0]


def test_it_prints_documents_and_warns_of_runtimes_that_never_answered(
    agent: Any, kubeletx: Callable[..., Result]
) -> None:
    for one in (detail("alpha", traits={}), detail("beta")):
        agent.backend.runtimes[one.runtime.name] = one.runtime
        agent.backend.details[one.runtime.name] = one
    result = kubeletx("runtime", "manifests")
    assert result.exit_code == 0
    printed = list(yaml.safe_load_all(result.stdout))
    assert [one["kind"] for one in printed] == ["RuntimeClass", "RuntimeClass"]
    assert [one["apiVersion"] for one in printed] == ["node.k8s.io/v1"] * 2
    assert "alpha never answered" in result.stderr


def with_images(one: RuntimeDetail, *, is_default: bool) -> RuntimeDetail:
    """With an image service of its own."""
    view = one.runtime
    service = ImageServiceView(
        name=view.name, workload_type=view.workload_type, url=view.url, is_default=is_default
    )
    changed = msgspec.structs.replace(view, default=is_default, image_service=service)
    return msgspec.structs.replace(one, runtime=changed)


DETAILS = [
    with_images(
        detail(
            "beta", handlers=("runc", "kata"), capabilities={"Exec": True, "Events": True, "Power": False}
        ),
        is_default=True,
    ),
    with_images(detail("alpha"), is_default=False),
    detail("kvm", "vm", capabilities={"Machine": True}),
]
SERVICES = [
    {
        "name": "beta", "workloadType": "container", "kind": "k", "isDefault": True,
        "features": ["Events", "Exec"], "handlers": ["kata", "runc"],
        "imageService": {"name": "beta", "workloadType": "container", "isDefault": True},
    },
    {
        "name": "alpha", "workloadType": "container", "kind": "k", "isDefault": False, "features": [], "handlers": [],
        "imageService": {"name": "alpha", "workloadType": "container", "isDefault": False},
    },
    {
        "name": "kvm", "workloadType": "vm", "kind": "k", "isDefault": False, "features": ["Machine"], "handlers": [],
    },
]  # fmt: skip


def test_the_services_of_a_node_are_listed_in_the_order_of_its_runtimes() -> None:
    config_map = runtime_services(DETAILS, "node-1").config_map
    assert config_map.metadata.name == "runtime-services.node-1"
    assert config_map.data["node"] == "node-1"
    assert yaml.safe_load(config_map.data["runtimes.yaml"]) == SERVICES


def test_the_list_is_the_same_text_in_whatever_order_a_runtime_reports_its_features() -> None:
    turned = [
        msgspec.structs.replace(
            one, capabilities=dict(reversed(one.capabilities.items())), handlers=one.handlers[::-1]
        )
        for one in DETAILS
    ]
    assert to_yaml(runtime_services(turned, "n").config_map) == to_yaml(
        runtime_services(DETAILS, "n").config_map
    )


def test_an_api_server_takes_the_list_and_gives_it_back(
    agent: Any, kubeletx: Callable[..., Result], tmp_path: Path
) -> None:
    for one in DETAILS:
        agent.backend.runtimes[one.runtime.name] = one.runtime
        agent.backend.details[one.runtime.name] = one
    agent.backend.node = Node(metadata=ObjectMeta(name="node-1"))
    result = kubeletx("runtime", "manifests", "-o", "configmap")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "  runtimes.yaml: |\n    - features:\n      - Events\n" in result.stdout
    with ApiServerDouble(tmp_path / "api") as api:
        made = api.admin.create("configmaps", yaml.safe_load(result.stdout), "default")
        name = made["metadata"]["name"]
        assert (name, made["data"]["node"]) == ("runtime-services.node-1", "node-1")
        assert (
            yaml.safe_load(api.admin.get("configmaps", name, "default")["data"]["runtimes.yaml"]) == SERVICES
        )


def test_the_list_warns_of_runtimes_that_never_answered() -> None:
    notes = runtime_services([detail("alpha", traits={}), detail("beta")], "node-1").notes
    assert notes == ("alpha never answered, so its features and handlers are not known",)
