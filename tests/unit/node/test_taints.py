"""Taints of workload types."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeletx.kube.types.node import Taint
from kubeletx.node.readiness import NEVER_ASKED, RuntimeFacts
from kubeletx.node.status import type_taints
from kubeletx.runtimes.handles.health import RuntimeState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
READY = RuntimeState(ready=True, network_ready=True, since=NOW)
DOWN = RuntimeState(ready=False, reason="Unavailable", since=NOW)


def runtime(name: str, type_: str, state: RuntimeState) -> RuntimeFacts:
    return RuntimeFacts(name=name, workload_type=type_, state=state)


def test_a_type_with_a_ready_runtime_has_no_taint() -> None:
    assert type_taints([runtime("a", "container", DOWN), runtime("b", "container", READY)]) == ()


def test_containers_are_kept_away_and_machines_only_avoided() -> None:
    found = type_taints([runtime("a", "container", DOWN), runtime("v", "vm", DOWN)])
    assert found == (
        Taint(key="workload.kubeletx.io/container", value="no-ready-runtime", effect="NoSchedule"),
        Taint(key="workload.kubeletx.io/vm", value="no-ready-runtime", effect="PreferNoSchedule"),
    )


def test_no_one_is_judged_before_having_been_asked() -> None:
    asked_later = RuntimeState(ready=False, reason=NEVER_ASKED, since=NOW)
    assert type_taints([runtime("a", "container", asked_later), runtime("b", "container", DOWN)]) == ()


def test_a_node_without_runtimes_has_no_taints() -> None:
    assert type_taints([]) == ()
