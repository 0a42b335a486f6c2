"""The view from outside: its figures, the barer pods, and the kubelet's configuration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from kubeletx.agent.config.load import load_config
from kubeletx.api import Resources
from kubeletx.testing import sandbox_spec, unit_spec
from script.benchmarks.floor import FloorPod, prepare
from script.benchmarks.lab import BenchLab
from script.benchmarks.outside import (
    AGENT,
    BARE,
    FULL,
    KUBELET,
    Seen,
    outside_figures,
    without_cgroups_and_labels,
)
from script.benchmarks.stock_kubelet import StockKubelet


def test_the_agent_is_compared_with_every_other_side() -> None:
    runs = {
        BARE: [Seen(3.0, 3.0)],
        FULL: [Seen(3.75, 3.6)],
        AGENT: [Seen(4.0, 4.5)],
        KUBELET: [Seen(5.0, 9.0)],
    }
    shown = [(one.label, one.value, one.floor, one.is_met) for one in outside_figures(30, runs)]
    assert shown == [
        ("30 pods from outside, against bare calls", 7.5, 10.0, False),
        ("30 pods from outside, against bare calls: CPU of each", 150.0, 100.0, None),
        ("30 pods from outside, against bare calls with everything", 7.5, 8.0, None),
        ("30 pods from outside, against bare calls with everything: CPU of each", 150.0, 120.0, None),
        ("30 pods from outside, bare calls with everything", 8.0, 10.0, None),
        ("30 pods from outside, bare calls with everything: CPU of each", 120.0, 100.0, None),
        ("30 pods from outside, against a kubelet", 7.5, 6.0, True),
        ("30 pods from outside, against a kubelet: CPU of each", 150.0, 300.0, None),
    ]


def test_without_a_kubelet_and_without_an_account_of_cpu_time_these_figures_are_left_out() -> None:
    runs = {side: [Seen(3.0, 0.0)] for side in (BARE, FULL, AGENT)}
    assert [one.label.partition(", ")[2] for one in outside_figures(30, runs)] == [
        "against bare calls",
        "against bare calls with everything",
        "bare calls with everything",
    ]


def test_the_barer_pod_asks_for_no_cgroups_and_no_labels() -> None:
    labels = {"io.kubernetes.pod.name": "a"}
    sandbox = sandbox_spec("a", labels=labels, annotations=labels, cgroup_parent="/pods/a")
    unit = unit_spec("main", labels=labels, annotations=labels, resources=Resources(cpu_shares=2))
    request = prepare(without_cgroups_and_labels(FloorPod(sandbox, (unit,))), marked=False)
    config = request.sandbox.config
    (container,) = (one.config for one in request.containers)
    assert not (config.labels)
    assert not (config.annotations)
    assert not (config.linux.cgroup_parent)
    assert not (container.labels)
    assert not (container.annotations)
    assert not (container.linux.resources.cpu_shares)
    assert container.image.image


def test_the_kubelets_configuration_is_one_that_the_agent_reads_too(tmp_path: Path) -> None:
    bench = cast(
        "BenchLab",
        SimpleNamespace(
            lab=SimpleNamespace(base_dir=tmp_path),
            manifests=tmp_path / "manifests",
            containerd=SimpleNamespace(endpoint="unix:///run/x.sock"),
        ),
    )
    file = tmp_path / "config.json"
    configuration: Any = StockKubelet(Path("/bin/kubelet"), bench).configuration()
    file.write_bytes(msgspec.json.encode(configuration))
    config = load_config(config_file=file)
    assert config.node.max_pods == 200
