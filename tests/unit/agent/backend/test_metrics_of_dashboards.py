"""A running agent exposes every series that kubernetes-mixin and metrics-server ask a kubelet for.

The lists are the names in the dashboards, rules and alerts of kubernetes-mixin that come from jobs kubelet and cadvisor
(as of August 2026), and those that metrics-server decodes. What a kubelet v1.36 has not itself is named with the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kubeletx.agent.backend.metrics import volume_metrics
from kubeletx.agent.host.readings import HostReadings
from kubeletx.kube.types.core import Container, ResourceRequirements, Volume
from kubeletx.node.host_usage import FsUsage
from kubeletx.pods import VolumeBoard
from kubeletx.server.metrics.cadvisor import cadvisor_metrics
from kubeletx.server.metrics.process import render
from kubeletx.server.metrics.resource import resource_metrics
from kubeletx.server.metrics.stats_summary import summary
from kubeletx.volumes.preparer import VolumePreparer
from tests.unit.agent.agent_model import AgentModel, FileTrees, a_pod
from tests.unit.agent.backend.metrics_model import more_metrics

OF_METRICS = {
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "kubelet_certificate_manager_client_ttl_seconds",
    "kubelet_certificate_manager_server_ttl_seconds",
    "kubelet_cgroup_manager_duration_seconds",
    "kubelet_evictions",
    "kubelet_node_name",
    "kubelet_pleg_relist_duration_seconds",
    "kubelet_pleg_relist_interval_seconds",
    "kubelet_pod_start_duration_seconds",
    "kubelet_pod_worker_duration_seconds",
    "kubelet_restarted_pods_total",
    "kubelet_running_containers",
    "kubelet_running_pods",
    "kubelet_runtime_operations_duration_seconds",
    "kubelet_runtime_operations_errors_total",
    "kubelet_runtime_operations_total",
    "kubelet_server_expiration_renew_errors",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kubelet_volume_stats_inodes",
    "kubelet_volume_stats_inodes_free",
    "kubelet_volume_stats_inodes_used",
    "kubelet_volume_stats_used_bytes",
    "kubernetes_build_info",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
    "python_gc_collections_total",
    "python_gc_objects_collected_total",
    "python_gc_objects_uncollectable_total",
    "python_info",
    "rest_client_request_duration_seconds",
    "rest_client_requests_total",
    "storage_operation_duration_seconds",
    "storage_operation_errors_total",
    "volume_manager_total_volumes",
}
OF_CADVISOR = {
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_cpu_usage_seconds_total",
    "container_fs_reads_bytes_total",
    "container_fs_reads_total",
    "container_fs_writes_bytes_total",
    "container_fs_writes_total",
    "container_memory_cache",
    "container_memory_rss",
    "container_memory_swap",
    "container_memory_usage_bytes",
    "container_memory_working_set_bytes",
    "container_network_receive_bytes_total",
    "container_network_receive_packets_dropped_total",
    "container_network_receive_packets_total",
    "container_network_transmit_bytes_total",
    "container_network_transmit_packets_dropped_total",
    "container_network_transmit_packets_total",
    "machine_cpu_cores",
    "machine_memory_bytes",
}
OF_METRICS_SERVER = {
    "container_cpu_usage_seconds_total",
    "container_memory_working_set_bytes",
    "container_start_time_seconds",
    "node_cpu_usage_seconds_total",
    "node_memory_working_set_bytes",
}
NOBODY_HAS = {
    "go_goroutines": "of programs in Go",
    "kubelet_node_config_error": "of dynamic configuration, which kubelets have not had since v1.24",
}
"""Asked for by kubernetes-mixin, and not exposed."""
REQUESTS = {"cpu": "100m", "memory": "64Mi"}
UNIT_FILES = {
    "cpu.stat": "usage_usec 9\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1500000\n",
    "memory.stat": "anon 30\nfile 20\n",
    "memory.current": "100\n",
    "memory.swap.current": "6\n",
    "io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
    "cgroup.procs": "1\n",
}


def names(text: bytes) -> set[str]:
    """Families that have samples."""
    return set(re.findall(r"^# TYPE (\S+) ", text.decode(), re.MULTILINE))


@pytest.fixture
def trees(agent: AgentModel, tmp_path: Path) -> Path:
    """A unified cgroup tree of plain files."""
    trees = FileTrees(tmp_path / "cgroup")
    agent.host = HostReadings(trees=trees)
    return trees.root


def test_no_name_is_both_asked_for_and_excused() -> None:
    assert not NOBODY_HAS.keys() & (OF_METRICS | OF_CADVISOR)


async def test_a_kubelets_dashboards_find_what_they_ask_for(agent: AgentModel, trees: Path) -> None:
    agent.configure("cgroups", per_qos=True)
    resources = ResourceRequirements(requests=REQUESTS)
    pod = a_pod(
        containers=(Container(name="main", image="busybox", resources=resources),),
        volumes=(Volume(name="v"),),
    )
    async with agent.running() as backend:
        await agent.apply(pod)
        # What needs a cluster, or a node in need, is counted by hand.
        agent.parts.pods.services.counters.evictions["memory.available"] += 1
        metrics = [*await backend.about.metrics(), *more_metrics()]
        made = {one.name: one for one in metrics}
        assert len(made) == len(metrics)
        assert not NOBODY_HAS.keys() & made.keys()
        (worker,) = agent.parts.manager.workers.values()
        fs = FsUsage(capacity_bytes=1, available_bytes=1, used_bytes=1, inodes=1, inodes_free=1)
        uses = {worker.uid: {"v": SimpleNamespace(claim="c", fs=fs)}}
        board = cast(VolumeBoard, SimpleNamespace(figures=uses))
        claims = volume_metrics(agent.parts.manager, cast(VolumePreparer, None), board)
        made |= {one.name: one for one in claims if "volume_stats" in one.name}
        text = render(made.values())
    found = names(text)
    assert found >= OF_METRICS, OF_METRICS - found
    assert not found & NOBODY_HAS.keys()
    for name, inside in re.findall(r"^(\w+)\{(.*?)\} ", text.decode(), re.MULTILINE):
        if name.startswith("python_"):
            continue
        family = name if name in made else re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(re.findall(r"(\w+)=\"", inside)) - {"le"} == set(made[family].labels), name


async def test_dashboards_of_containers_and_metrics_server_find_what_they_ask_for(
    agent: AgentModel, trees: Path
) -> None:
    agent.configure("cgroups", per_qos=True)
    resources = ResourceRequirements(requests=REQUESTS)
    pod = a_pod(containers=(Container(name="main", image="busybox", resources=resources),))
    async with agent.running():
        made = await agent.apply(pod)
        await agent.clock.run_for(10)
        (unit_id,) = agent.runtimes["one"].backend.units
        where = f"kubepods/burstable/pod{made.uid}"
        for group in ("kubepods", "kubepods/burstable", where, f"{where}/{unit_id}", "system.slice"):
            (trees / group).mkdir(exist_ok=True)
            for name, text in UNIT_FILES.items():
                (trees / group / name).write_text(text)
        figure_backend = agent.parts.views.figures
        await agent.done(figure_backend.figures())
        (trees / "kubepods/cpu.stat").write_text("usage_usec 500009\n")
        await agent.clock.run_for(10)
        figures = await agent.done(figure_backend.figures())
    rendered = cadvisor_metrics(figures, lambda device: f"/dev/{device}")
    text = rendered.decode()
    assert names(rendered) >= OF_CADVISOR, OF_CADVISOR - names(rendered)
    resource = resource_metrics(figures)
    assert names(resource) >= OF_METRICS_SERVER, OF_METRICS_SERVER - names(resource)
    ids = re.findall(r'^container_memory_working_set_bytes\{.*id="([^"]*)"', text, re.MULTILINE)
    assert set(ids) == {
        "/",
        "/kubepods",
        "/kubepods/burstable",
        "/system.slice",
        f"/{where}",
        f"/{where}/{unit_id}",
    }
    assert 'container_fs_reads_total{container="main"' in text
    assert 'container_tasks_state{container="main"' in text
    assert 'machine_cpu_cores{boot_id="' in text
    reported = summary(figures)["node"]["systemContainers"]
    (pods,) = (one for one in reported if one["name"] == "pods")
    assert pods["memory"]["workingSetBytes"] == 100
    assert pods["cpu"]["usageNanoCores"] > 0


def test_an_agent_that_no_one_scrapes_has_not_imported_what_renders_metrics() -> None:
    code = "import sys, kubeletx.agent.assembly; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(done.stdout.split()) & {
        "kubeletx.server.metrics.cadvisor",
        "kubeletx.server.metrics.process",
        "kubeletx.server.metrics.resource",
        "kubeletx.server.metrics.stats_summary",
        "prometheus_client",
    }
