"""Metrics and statistics of pods and the node, as metrics-server and dashboards read them."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from kubeletx.api import EventSink, InterfaceStats, PodUid, UnitId, UnitStats
from kubeletx.api.counting import Durations, Metric, counter, histogram
from kubeletx.node.cgroups.processes import ProcessUsage
from kubeletx.node.cgroups.psi import Pressures, PressureStall, Stall
from kubeletx.node.cgroups.usage import BlockDeviceUsage, CgroupSpec, CgroupUsage
from kubeletx.node.host_usage import DiskTraffic, FsUsage, HostUsage
from kubeletx.node.info import MachineInfo
from kubeletx.pods import UnitProbes
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.kubelet.readonly import readonly_server
from kubeletx.server.metrics.cadvisor import cadvisor_metrics
from kubeletx.server.metrics.figures import (
    Figures,
    GroupFigures,
    PodFigures,
    SystemFigures,
    UnitFigures,
    VolumeFigures,
)
from kubeletx.server.metrics.process import render_probes, sli_metrics
from kubeletx.server.metrics.resource import resource_metrics
from kubeletx.server.metrics.stats_summary import summary
from kubeletx.server.views import HealthView, PartHealth
from kubeletx.testing import FakeClock
from kubeletx.volumes.disk_usage import DiskUse
from tests.unit.server.api_client import serving
from tests.unit.server.fake_admin import FakeAdminBackend

AT_NS = 1_780_000_000_250_000_000
HOST = HostUsage(
    at_ns=AT_NS,
    booted_at=1_770_000_000.0,
    cpu_core_ns=5_000_000_000,
    cores=2,
    memory_capacity_bytes=1 << 30,
    memory_usage_bytes=700,
    memory_working_set_bytes=600,
    memory_rss_bytes=500,
    swap_capacity_bytes=100,
    swap_usage_bytes=40,
    page_faults=7,
    major_page_faults=1,
    interfaces=(),
    disks={"8:0": DiskTraffic(1, 2, 3, 4000, 5, 6, 7, 8000, 9, 10, 11)},
    fs=FsUsage(capacity_bytes=100, available_bytes=40, used_bytes=60, inodes=10, inodes_free=4),
)
ETH0 = InterfaceStats(
    name="eth0",
    rx_bytes=1,
    rx_packets=2,
    rx_errors=3,
    rx_dropped=4,
    tx_bytes=5,
    tx_packets=6,
    tx_errors=7,
    tx_dropped=8,
)


def unit(name: str = "main", *, cpu_ns: int | None = 2_500_000_000, memory: int | None = 4096) -> UnitFigures:
    return UnitFigures(
        name=name,
        id=f"{name}-id",
        image="busybox",
        started_at=1_779_999_000.0,
        stats=UnitStats(
            id=UnitId(f"{name}-id"),
            uid=PodUid("u1"),
            name=name,
            at_ns=AT_NS,
            cpu_usage_core_ns=cpu_ns,
            cpu_usage_nano_cores=50_000_000,
            memory_working_set_bytes=memory,
            fs_used_bytes=30,
        ),
        log_bytes=12,
    )


def pod(*units: UnitFigures, name: str = "web") -> PodFigures:
    return PodFigures(
        namespace="default",
        name=name,
        uid="u1",
        runtime="containerd",
        started_at=1_779_998_000.0,
        units=units or (unit(),),
        interfaces=(ETH0,),
    )


def figures(*pods: PodFigures) -> Figures:
    return Figures(node_name="node-1", host=HOST, cpu_nano_cores=9, pods=pods)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, Any]]:
    """(name, labels) to value and time, by the format's own parser."""
    return {
        (one.name, tuple(sorted(one.labels.items()))): (one.value, one.timestamp)
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


WEB = (("container", "main"), ("namespace", "default"), ("pod", "web"))


def test_resource_metrics_are_what_metrics_server_reads() -> None:
    found = samples(resource_metrics(figures(pod())))
    at = AT_NS // 1_000_000 / 1000
    assert found["container_cpu_usage_seconds_total", WEB] == (2.5, at)
    assert found["container_memory_working_set_bytes", WEB] == (4096, at)
    assert found["container_start_time_seconds", WEB] == (1_779_999_000.0, None)
    assert found["pod_cpu_usage_seconds_total", WEB[1:]] == (2.5, at)
    assert found["pod_memory_working_set_bytes", WEB[1:]] == (4096, at)
    expected: dict[str, tuple[float, float | None]] = {
        "node_cpu_usage_seconds_total": (5.0, at),
        "node_memory_working_set_bytes": (600, at),
        "resource_scrape_error": (0, None),
    }
    assert {name: found[name, ()] for name in expected} == expected


@pytest.mark.parametrize(
    "one",
    [
        pod(unit("main"), unit("other", cpu_ns=0)),
        pod(unit("main"), unit("other", cpu_ns=None)),
        pod(unit("main", memory=0)),
        pod(unit("main", memory=None)),
        replace(pod(), units=()),
        replace(pod(), is_whole=False),
    ],
)
def test_a_pod_that_was_not_measured_whole_is_left_out_and_the_others_are_not(one: PodFigures) -> None:
    found = samples(resource_metrics(figures(one, pod(name="good"))))
    assert {dict(labels).get("pod") for _, labels in found} == {None, "good"}


def test_a_machine_whose_memory_is_known_only_as_a_whole_counts() -> None:
    stats = replace(unit().stats, memory_working_set_bytes=None, memory_usage_bytes=7)
    found = samples(resource_metrics(figures(pod(replace(unit(), stats=stats)))))
    assert found["container_memory_working_set_bytes", WEB][0] == 7


def test_cadvisors_series_carry_its_labels_and_the_runtime() -> None:
    counted = CgroupUsage(
        periods=10,
        throttled_periods=3,
        throttled_seconds=0.5,
        cache_bytes=20,
        rss_bytes=30,
        swap_bytes=0,
        disks=(BlockDeviceUsage(device="8:0", read_bytes=1, write_bytes=2, reads=3, writes=4),),
    )
    one = replace(unit(), cgroup=counted, cpu_limit_millicores=500, memory_limit_bytes=1 << 20)
    found = samples(cadvisor_metrics(figures(pod(one)), lambda device: "/dev/sda"))
    by_name = {
        name: (dict(labels), value)
        for (name, labels), (value, _) in found.items()
        if dict(labels).get("id") != "/"
    }
    cpu = {dict(labels)["container"]: value for (name, labels), (value, _) in found.items()
           if name == "container_cpu_usage_seconds_total"}  # fmt: skip
    assert cpu == {"": 5.0, "main": 2.5}
    labels, value = by_name["container_memory_working_set_bytes"]
    assert value == 4096
    assert labels == {
        "container": "main",
        "id": "/podu1/main-id",
        "image": "busybox",
        "name": "main-id",
        "namespace": "default",
        "pod": "web",
        "runtime": "containerd",
    }
    for name, value in (
        ("container_memory_cache", 20),
        ("container_memory_rss", 30),
        ("container_memory_swap", 0),
        ("container_cpu_cfs_periods_total", 10),
        ("container_cpu_cfs_throttled_periods_total", 3),
        ("container_fs_reads_total", 3),
        ("container_fs_writes_bytes_total", 2),
        ("container_spec_cpu_quota", 50_000),
        ("container_spec_memory_limit_bytes", 1 << 20),
        ("container_network_receive_bytes_total", 1),
        ("container_network_transmit_packets_dropped_total", 8),
    ):
        assert by_name[name][1] == value, name
    assert by_name["container_fs_reads_total"][0]["device"] == "/dev/sda"
    assert by_name["container_network_receive_bytes_total"][0]["interface"] == "eth0"
    assert found["machine_cpu_cores", ()][0] == 2
    assert found["machine_memory_bytes", ()][0] == 1 << 30


def test_what_was_not_measured_is_not_a_sample() -> None:
    bare = UnitFigures(name="vm", id="x", image="i", started_at=1.0,
                       stats=UnitStats(id=UnitId("x"), uid=PodUid("u1"), name="vm", at_ns=AT_NS))  # fmt: skip
    text = cadvisor_metrics(figures(replace(pod(bare), interfaces=())), str).decode()
    for name in ("container_memory_cache", "container_cpu_cfs_periods_total", "container_network_"):
        assert name not in text
    assert "None" not in text


def test_labels_are_escaped() -> None:
    odd = replace(unit(), image='a"b\\c\nd')
    found = samples(cadvisor_metrics(figures(pod(odd)), str))
    assert 'a"b\\c\nd' in {dict(labels).get("image") for _, labels in found}


def test_the_summary_has_the_kubelets_form() -> None:
    found = summary(replace(figures(pod(unit("a"), unit("b"))), image_fs=HOST.fs))
    node, (one,) = found["node"], found["pods"]
    assert node["nodeName"] == "node-1"
    assert node["cpu"] == {
        "time": "2026-05-28T20:26:40Z",
        "usageNanoCores": 9,
        "usageCoreNanoSeconds": 5_000_000_000,
    }
    assert node["memory"]["workingSetBytes"] == 600
    assert node["fs"]["inodesUsed"] == 6
    assert node["runtime"]["imageFs"]["capacityBytes"] == 100
    assert one["podRef"] == {"name": "web", "namespace": "default", "uid": "u1"}
    assert [unit_["name"] for unit_ in one["containers"]] == ["a", "b"]
    assert one["cpu"]["usageCoreNanoSeconds"] == 5_000_000_000
    assert one["memory"]["workingSetBytes"] == 8192
    assert "rssBytes" not in one["memory"]
    assert one["network"]["rxBytes"] == 1
    assert one["ephemeral-storage"]["usedBytes"] == 84
    assert one["containers"][0]["logs"]["usedBytes"] == 12
    json.dumps(found)


def test_the_short_summary_has_processor_and_memory_only() -> None:
    found = summary(figures(pod()), only_cpu_and_memory=True)
    assert set(found["node"]) == {"nodeName", "startTime", "cpu", "memory"}
    assert set(found["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory"}
    assert set(found["pods"][0]["containers"][0]) == {"name", "startTime", "cpu", "memory"}


def test_probes_and_health_are_counted() -> None:
    count = counter("prober_probe_total", "Probes.", {("c", "Liveness"): 3}, "container", "probe_type")
    (((name, labels), (value, _)),) = samples(render_probes((count,))).items()
    assert (name, value) == ("prober_probe_total", 3)
    assert dict(labels)["probe_type"] == "Liveness"
    assert render_probes(()) == b""
    health = HealthView(parts=(PartHealth(name="syncloop", ok=False),))
    found = samples(sli_metrics(health))
    assert found["kubernetes_healthcheck", (("name", "syncloop"), ("type", "healthz"))][0] == 0


class Source:
    async def figures(self) -> Figures:
        return figures(pod())


async def test_the_read_only_port_serves_metrics_and_statistics_too() -> None:
    server = readonly_server(FakeAdminBackend().parts, Source(), "127.0.0.1", 0)
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            for path in ("resource", "cadvisor", "probes", "slis"):
                async with session.get(f"/metrics/{path}") as answer:
                    assert answer.status == 200
            async with session.get("/stats/summary") as answer:
                assert (await answer.json())["node"]["nodeName"] == "node-1"
    finally:
        await server.stop()


async def test_each_is_served_at_its_path(tmp_path: Path) -> None:
    async with serving(tmp_path, figures=Source()) as api, api.client(api.admin) as client:
        for path in ("/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis"):
            async with client.get(path) as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        for query, short in (("", False), ("?only_cpu_and_memory=true", True)):
            code, text = await api.get(f"/stats/summary{query}")
            assert code == 200
            assert ("fs" in json.loads(text)["node"]) is not short
    async with serving(tmp_path) as api:
        assert await api.get("/stats/summary") == (503, "nobody measures here")


def test_volumes_are_reported_and_those_on_the_nodes_disk_count_as_ephemeral_storage() -> None:
    fs = FsUsage(capacity_bytes=100, available_bytes=40, used_bytes=60, inodes=10, inodes_free=4)
    volumes = {
        "data": VolumeFigures(at=AT_NS / 1e9, fs=fs, claim="disk"),
        "scratch": VolumeFigures(at=AT_NS / 1e9, fs=fs, use=DiskUse(bytes=1000, inodes=3), on_node_disk=True),
        "token": VolumeFigures(at=AT_NS / 1e9, fs=fs, use=DiskUse(bytes=7, inodes=2)),
    }
    found = summary(figures(replace(pod(unit("a"), unit("b")), volumes=volumes)))["pods"][0]
    size = {"capacityBytes": 100, "availableBytes": 40, "inodes": 10, "inodesFree": 4}
    size["time"] = found["volume"][0]["time"]
    assert found["volume"] == [
        {
            **size,
            "name": "data",
            "usedBytes": 60,
            "inodesUsed": 6,
            "pvcRef": {"name": "disk", "namespace": "default"},
        },
        {**size, "name": "scratch", "usedBytes": 1000, "inodesUsed": 3},
        {**size, "name": "token", "usedBytes": 7, "inodesUsed": 2},
    ]
    assert found["ephemeral-storage"]["usedBytes"] == 1084
    (unmeasured,) = summary(figures(replace(pod(), volumes=volumes)))["pods"]
    assert unmeasured["volume"] == found["volume"]
    (short,) = summary(figures(replace(pod(), volumes=volumes)), only_cpu_and_memory=True)["pods"]
    assert "volume" not in short


STALL = Stall(avg10=1.5, avg60=0.5, total_us=3_000_000)
PRESSURE = PressureStall(some=STALL, full=Stall(total_us=1000))
PRESSURES = Pressures(cpu=PRESSURE, memory=PRESSURE, io=PRESSURE)
WHOLE = CgroupUsage(
    **{name: 7 for name in CgroupUsage.__struct_fields__ if name not in ("disks", "spec", "pressures")},
    disks=(BlockDeviceUsage(device="8:0", read_bytes=1, write_bytes=2, reads=3, writes=4),),
    spec=CgroupSpec(
        cpu_shares=512,
        cpu_quota_us=50_000,
        cpu_period_us=100_000,
        memory_limit_bytes=1 << 20,
        memory_reservation_bytes=0,
        swap_limit_bytes=100,
        swap_file_bytes=300,
    ),
    pressures=PRESSURES,
)
HELD = ProcessUsage(
    processes=2, threads=5, max_threads=0, file_descriptors=9, sockets=3, states={"running": 1, "sleeping": 1}
)


def whole_figures(*missing: str) -> Figures:
    """Everything that can be known of a node with one pod."""
    one = replace(
        unit(), cgroup=WHOLE, cgroup_path="kubepods/podu1/main-id", processes=HELD, memory_limit_bytes=1 << 19
    )
    pods = replace(pod(one), cgroup=WHOLE, cgroup_path="kubepods/podu1")
    return replace(
        figures(pods),
        host=replace(HOST, pressures=PRESSURES, interfaces=(ETH0,)),
        image_fs=HOST.fs,
        missing=missing,
        machine=MachineInfo(
            machine_id="m",
            system_uuid="s",
            boot_id="b",
            kernel_version="6.1",
            os_image="Debian",
            physical_cores=1,
            sockets=1,
        ),
        groups=(GroupFigures(path="", usage=WHOLE), GroupFigures(path="kubepods", usage=WHOLE)),
        system=(SystemFigures(name="pods", usage=WHOLE, started_at=1_779_998_000.0, cpu_nano_cores=5),),
        root_device="8:1",
        image_device="8:0",
    )


def test_the_machine_shared_cgroups_pods_and_containers_have_rows_of_their_own() -> None:
    found = samples(cadvisor_metrics(whole_figures(), lambda device: f"/dev/{device}"))
    rows = {
        dict(labels)["id"]: (dict(labels)["container"], dict(labels)["pod"], value)
        for (name, labels), (value, _) in found.items()
        if name == "container_cpu_usage_seconds_total"
    }
    assert rows == {
        "/": ("", "", 5.0),
        "/kubepods": ("", "", 7.0),
        "/kubepods/podu1": ("", "web", 7.0),
        "/kubepods/podu1/main-id": ("main", "web", 2.5),
    }
    by_id = {
        (name, dict(labels)["id"], dict(labels).get("device", "")): value
        for (name, labels), (value, _) in found.items()
        if "id" in dict(labels)
    }
    main = "/kubepods/podu1/main-id"
    for name, value in (
        ("container_processes", 2),
        ("container_threads", 5),
        ("container_file_descriptors", 9),
        ("container_sockets", 3),
        ("container_spec_cpu_shares", 512),
        ("container_spec_memory_limit_bytes", 1 << 20),
        ("container_memory_max_usage_bytes", 7),
        ("container_memory_failcnt_total", 7),  # the parser gives every counter this ending
        ("container_pressure_io_waiting_seconds_total", 3.0),
        ("container_pressure_io_stalled_seconds_total", 0.001),
    ):
        assert by_id[name, main, ""] == value, name
    assert by_id["container_fs_reads_bytes_total", "/", "/dev/8:0"] == 3 * 512
    assert by_id["container_fs_write_seconds_total", "/", "/dev/8:0"] == 8.0
    assert by_id["container_fs_io_current", "/", "/dev/8:0"] == 9
    assert by_id["container_fs_usage_bytes", main, "/dev/8:0"] == 30
    assert by_id["container_fs_limit_bytes", main, "/dev/8:0"] == 100
    assert by_id["container_fs_limit_bytes", "/", "/dev/8:1"] == 100
    assert by_id["container_fs_inodes_free", "/", "/dev/8:1"] == 4
    kinds = {
        (dict(labels)["failure_type"], dict(labels)["scope"])
        for name, labels in found
        if name == "container_memory_failures_total"
    }
    assert len(kinds) == 4
    machine = (("boot_id", "b"), ("machine_id", "m"), ("system_uuid", "s"))
    assert found["machine_cpu_physical_cores", machine][0] == 1
    (version,) = [dict(labels) for name, labels in found if name == "cadvisor_version_info"]
    assert (version["kernelVersion"], version["osVersion"]) == ("6.1", "Debian")


def test_the_machines_ends_of_pods_interfaces_and_unused_quotas_have_no_rows() -> None:
    ends = tuple(replace(ETH0, name=name) for name in ("eth0", "veth1", "docker0"))
    quiet = replace(WHOLE, periods=0)
    whole = whole_figures()
    one = replace(
        whole, host=replace(whole.host, interfaces=ends), groups=(GroupFigures(path="kubepods", usage=quiet),)
    )
    found = samples(cadvisor_metrics(one, str))
    interfaces = {
        dict(labels)["interface"]
        for name, labels in found
        if name == "container_network_receive_bytes_total" and dict(labels)["id"] == "/"
    }
    assert interfaces == {"eth0"}
    with_quota = {dict(labels)["id"] for name, labels in found if name == "container_cpu_cfs_periods_total"}
    assert with_quota == {"/kubepods/podu1", "/kubepods/podu1/main-id"}


@pytest.mark.parametrize("missing", [(), ("two",)])
def test_a_scrape_error_is_a_runtime_that_did_not_answer(missing: tuple[str, ...]) -> None:
    resource = samples(resource_metrics(whole_figures(*missing)))
    cadvisor = samples(cadvisor_metrics(whole_figures(*missing), str))
    for found, name in (
        (resource, "resource_scrape_error"),
        (resource, "scrape_error"),
        (cadvisor, "container_scrape_error"),
    ):
        assert found[name, ()][0] == len(missing)


def test_swap_comes_from_the_cgroup_where_the_runtime_does_not_measure_it() -> None:
    found = samples(resource_metrics(whole_figures()))
    assert found["container_swap_usage_bytes", WEB][0] == 7
    assert found["container_swap_limit_bytes", WEB][0] == 100
    assert found["pod_swap_usage_bytes", WEB[1:]][0] == 7
    (reported,) = summary(whole_figures())["pods"]
    assert reported["containers"][0]["swap"] == {
        "time": "2026-05-28T20:26:40Z",
        "swapAvailableBytes": 93,
        "swapUsageBytes": 7,
    }
    assert reported["swap"]["swapUsageBytes"] == 7


def test_the_summary_reports_pressure_and_what_belongs_to_no_pod() -> None:
    found = summary(whole_figures())
    psi = {
        "full": {"total": 1000, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0},
        "some": {"total": 3_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.0},
    }
    node, (one,) = found["node"], found["pods"]
    for part in (node, one, one["containers"][0]):
        assert part["cpu"]["psi"] == part["memory"]["psi"] == part["io"]["psi"] == psi
    (system,) = node["systemContainers"]
    assert (system["name"], system["startTime"]) == ("pods", "2026-05-28T19:53:20Z")
    assert (system["cpu"]["usageNanoCores"], system["cpu"]["usageCoreNanoSeconds"]) == (5, 7_000_000_000)
    assert system["memory"]["workingSetBytes"] == 7
    assert one["process_stats"] == {"process_count": 2}
    short = summary(whole_figures(), only_cpu_and_memory=True)
    assert short["node"]["systemContainers"][0]["name"] == "pods"
    assert "io" not in short["node"]
    assert "psi" not in summary(figures(pod()))["node"]["cpu"]


def test_the_time_of_probes_is_a_histogram() -> None:
    took = Durations((0.5, 1))
    for seconds in (0.25, 0.25, 1.0, 3.0):
        took.add(seconds)
    name = "prober_probe_duration_seconds"
    one = histogram(name, "Time.", lambda: [(("c", "Readiness"), took)], "container", "probe_type")
    found = samples(render_probes((one,)))
    labels = (("container", "c"), ("probe_type", "Readiness"))
    buckets = {dict(key[1])["le"]: value for key, (value, _) in found.items() if key[0] == f"{name}_bucket"}
    assert buckets == {"0.5": 2, "1": 3, "+Inf": 4}
    assert found[f"{name}_sum", labels][0] == 4.5
    assert found[f"{name}_count", labels][0] == 4


PAGE = Path(__file__).parents[4] / "docs/reference.md"


def labels_by_name(text: bytes) -> dict[str, set[str]]:
    """Family to the labels that its samples have."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        name = re.search(rf"^# TYPE ({family.name}\w*) ", text.decode(), re.MULTILINE)
        assert name is not None
        found[name[1]] = {label for one in family.samples for label in one.labels} - {"le"}
    return found


def _one_sample(metric: Metric) -> list[tuple[tuple[str, ...], Any]]:
    return [(metric.labels, Durations() if metric.kind == "histogram" else 1)]


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("/metrics/resource", resource_metrics(whole_figures())),
        ("/metrics/cadvisor", cadvisor_metrics(whole_figures(), str)),
        (
            "/metrics/probes",
            render_probes(
                one._replace(source=partial(_one_sample, one))
                for one in UnitProbes(
                    cast(RuntimeRegistry, None), FakeClock(), cast(EventSink, None)
                ).metrics()
            ),
        ),
        ("/metrics/slis", sli_metrics(HealthView())),
    ],
)
def test_the_reference_lists_every_series_with_its_labels(title: str, text: bytes) -> None:
    section = PAGE.read_text().partition(f"\n### {title}\n")[2].partition("\n#")[0]
    rows = [line.split("|")[1:3] for line in section.split("\n") if line.startswith("| `")]
    reported = {
        name.strip().strip("`"): {one.strip() for one in labels.split(",") if one.strip()}
        for name, labels in rows
    }
    assert reported == labels_by_name(text)
