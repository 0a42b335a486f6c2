"""Volumes of the driver in examples/plugins/ramdisk, in pods on containerd, through crashes of agent and driver."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.linux.mounts import MountPoint, mounts_below, read_mounts
from kubeletx_testing.lab import Lab, PrivateAgent, bound_runtime, pod_manifest, put_manifest
from tests.integration.support.bench import Bench
from tests.integration.support.survival import life, until

MakeAgent = Callable[..., PrivateAgent]
VOLUME = {"name": "data", "flexVolume": {"driver": "example.com/ramdisk", "options": {"size": "8Mi"}}}
MOUNT = {"name": "data", "mountPath": "/data"}
KILLS = 3
FLAGS = ("--disable-plugin=flexvolume",)


def parts(volume: dict[str, Any] = VOLUME, *mounts: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Parts of the manifest of a pod with one volume."""
    return {"container": {"volumeMounts": [MOUNT, *mounts]}, "spec": {"volumes": [volume], **spec}}


def driver_mounts(agent: PrivateAgent) -> tuple[MountPoint, ...]:
    """File systems that the driver has mounted for pods of the agent, without bind mounts of subPath."""
    found = mounts_below(read_mounts(), agent.root_dir / "pods")
    return tuple(one for one in found if "example.com~ramdisk" in one.target)


def place(agent: PrivateAgent, pod: Pod) -> Path:
    """The volume of a pod on the node."""
    return agent.root_dir / "pods" / str(pod.metadata.uid) / "volumes/example.com~ramdisk/data"


def left(agent: PrivateAgent) -> list[str]:
    """Mounts and directories of pods that are left."""
    mounts = [one.target for one in mounts_below(read_mounts(), agent.root_dir / "pods")]
    return [*mounts, *(str(path) for path in (agent.root_dir / "pods").iterdir())]


def child(agent: PrivateAgent) -> dict[str, Any]:
    """The process of the driver; empty while none runs."""
    items = msgspec.json.decode(agent.cli("plugins", "-o", "json").stdout)["items"]
    (processes,) = [one["processes"] for one in items if one["name"] == "ramdisk"]
    return processes[0] if processes else {}


def releases(agent: PrivateAgent) -> int:
    """Number of releases by the driver since the start of the agent."""
    wanted = 'callback="release",plugin="ramdisk",registration="ramdisk"'
    lines = agent.get("/metrics").decode().split("\n")
    name = "kubeletx_plugin_callback_duration_seconds_count"
    return sum(int(float(one.split()[-1])) for one in lines if one.startswith(name) and wanted in one)


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(examples=("ramdisk",), flags=(*FLAGS, "--volume-stats-agg-period=1s"))


@pytest.fixture
def agent(make_agent: MakeAgent) -> PrivateAgent:
    """An agent of one test, started."""
    one = make_agent(examples=("ramdisk",), flags=FLAGS)
    one.start()
    return one


def test_a_pod_writes_and_reads_its_volume(bench: Bench) -> None:
    sub = {"name": "data", "mountPath": "/sub", "subPath": "a/b"}
    script = (
        "echo one > /data/file && cat /data/file && echo two > /sub/file && cat /data/a/b/file"
        " && df -k /data | tail -1 | awk '{print $2}' && stat -c %g /data /data/file"
    )
    found = bench.run("writes", script, **parts(VOLUME, sub, securityContext={"fsGroup": 4242}))
    assert found.split() == ["one", "two", "8192", "4242", "4242"]
    bench.remove("writes")
    until(lambda: not left(bench.agent), "nothing of the pod is left")
    assert releases(bench.agent) >= 1


def test_a_read_only_volume_cannot_be_written(bench: Bench) -> None:
    volume = {"name": "data", "flexVolume": {"driver": "example.com/ramdisk", "readOnly": True}}
    assert (
        bench.run("reads", "touch /data/file 2>/dev/null || echo refused", **parts(volume)).split()[-1]
        == "refused"
    )
    bench.remove("reads")


def test_what_the_driver_refuses_is_in_the_events_and_leaves_nothing(bench: Bench) -> None:
    volume = {"name": "data", "flexVolume": {"driver": "example.com/ramdisk", "options": {"size": "9Gi"}}}
    bench.put("large", **parts(volume))
    event = bench.event("large", "FailedMount")
    assert event["message"] == (
        'MountVolume.SetUp failed for volume "data" : size: 9Gi is not allowed; write one up to 1Gi'
    )
    bench.remove("large")
    until(lambda: not left(bench.agent), "nothing of the pod is left")


def test_the_use_of_a_volume_is_measured_by_the_driver(bench: Bench) -> None:
    bench.put("measured", "head -c 4000000 /dev/zero > /data/file; sleep 1000 & wait", **parts())
    bench.ready("measured")
    shown = until(
        lambda: [
            one for one in _volumes(bench.agent, "measured") if (one.get("usedBytes") or 0) >= 4_000_000
        ],
        "the use of the volume is shown",
    )
    assert (shown[0]["driver"], shown[0]["capacityBytes"]) == ("ramdisk", 8 << 20)
    bench.remove("measured")


def _volumes(agent: PrivateAgent, pod: str) -> list[dict[str, Any]]:
    items = msgspec.json.decode(agent.cli("get", "volumes", "-o", "json").stdout)["items"]
    return [one for one in items if one.get("pod", "").startswith(pod)]


def test_a_driver_whose_process_was_killed_releases_its_volumes(bench: Bench) -> None:
    bench.put("left", **parts())
    bench.ready("left")
    first = child(bench.agent)
    os.kill(first["pid"], signal.SIGKILL)
    bench.remove("left")
    until(lambda: not left(bench.agent), "nothing of the pod is left")
    assert child(bench.agent)["pid"] != first["pid"]


def test_many_pods_start_and_end_at_the_same_time(bench: Bench) -> None:
    names = [f"many-{number}" for number in range(6)]
    volumes = [{**VOLUME, "name": "data"}, {**VOLUME, "name": "more"}, {**VOLUME, "name": "most"}]
    for name in names:
        bench.put(name, **{**parts(), "spec": {"volumes": volumes}})
    for name in names:
        bench.ready(name)
        assert "FailedMount" not in bench.reasons(name)
    assert len(driver_mounts(bench.agent)) == 18
    bench.remove(*names)
    until(lambda: not left(bench.agent), "nothing of the pods is left")


def test_a_killed_agent_keeps_a_pod_with_its_data_and_releases_it_later(
    agent: PrivateAgent, manifests: Path
) -> None:
    manifest = put_manifest(manifests, pod_manifest("kept", **parts()))
    pod = agent.wait_for("kept")
    (place(agent, pod) / "file").write_text("one")
    mounts = driver_mounts(agent)
    agent.kill()
    agent.start()
    after = agent.wait_for("kept")
    assert life(after) == life(pod)
    assert driver_mounts(agent) == mounts, "the volume is neither mounted again nor released"
    assert (place(agent, pod) / "file").read_text() == "one"
    manifest.unlink()
    agent.wait_gone("kept")
    until(lambda: not left(agent), "nothing of the pod is left")
    assert releases(agent) == 1


def test_kills_at_random_moments_leave_no_mount(agent: PrivateAgent, manifests: Path) -> None:
    chance = random.Random(14)
    files: list[Path] = []
    for number in range(KILLS):
        files.append(put_manifest(manifests, pod_manifest(f"pod-{number}", **parts())))
        if number % 2:
            files.pop(0).unlink()
        time.sleep(chance.uniform(0.0, 1.5))  # a random moment, not a state
        agent.kill()
        agent.start()
    for file in files:
        agent.wait_for(file.stem)
    until(lambda: len(driver_mounts(agent)) == len(files), "one mount for each pod")
    for file in files:
        file.unlink()
    until(lambda: not left(agent), "nothing of the pods is left")


def test_a_volume_waits_for_the_plugin_that_must_release_it(agent: PrivateAgent, manifests: Path) -> None:
    manifest = put_manifest(manifests, pod_manifest("waits", **parts()))
    pod = agent.wait_for("waits")
    agent.stop()
    agent.flags = (*FLAGS, "--disable-plugin=ramdisk")
    agent.start()
    manifest.unlink()
    events = until(
        lambda: [
            one
            for one in msgspec.json.decode(agent.get("/v1/events"))["items"]
            if "(flexVolume:example.com/ramdisk), is missing" in one["message"]
        ],
        "an event names the driver",
    )
    assert events[0]["involvedObject"]["name"] == pod.metadata.name
    assert "volume driver ramdisk, which prepared the volume" in events[0]["message"]
    assert "install its plugin again: the volume is released when it is back" in events[0]["message"]
    assert len(driver_mounts(agent)) == 1
    agent.stop()
    agent.flags = FLAGS
    agent.start()
    until(lambda: not left(agent), "nothing of the pod is left")


def test_an_ended_pod_whose_manifest_is_gone_is_released_by_the_driver(
    agent: PrivateAgent, manifests: Path, lab: Lab
) -> None:
    script = "until [ -e /data/end ]; do sleep 0.1; done"
    spec = {**parts(), "command": ["sh", "-c", script]}
    spec["spec"] = {**spec["spec"], "restartPolicy": "Never"}
    manifest = put_manifest(manifests, pod_manifest("gone", **spec))
    pod = agent.wait_for("gone")
    agent.kill()
    (place(agent, pod) / "end").touch()
    with lab[bound_runtime(pod)].cri() as calls:
        until(
            lambda: not [one for one in calls.containers(pod_uid=str(pod.metadata.uid)) if one.state == 1],
            "its container has ended",
        )
    manifest.unlink()
    assert len(driver_mounts(agent)) == 1
    agent.start()
    until(lambda: not left(agent), "nothing of the pod is left")
    assert releases(agent) == 1
