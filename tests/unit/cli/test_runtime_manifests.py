"""``kubeletx runtime manifests``: one RuntimeClass for each runtime and handler."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import yaml
from click.testing import Result

from kubeletx.cli.runtime_manifests import runtime_classes
from kubeletx.server.views import RuntimeDetail, RuntimeView

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


def test_a_handler_that_no_class_can_name_is_told_and_left_out() -> None:
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
