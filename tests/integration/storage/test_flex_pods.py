"""Pods with executable FlexVolume drivers on a whole agent: good drivers next to drivers that hang, flood and lie."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.linux.mounts import mounts_below, read_mounts
from kubeletx_testing.lab import PrivateAgent
from tests.integration.storage.flex_drivers import TMPFS_SCRIPT
from tests.integration.support.bench import Bench
from tests.integration.support.survival import until

INIT = """init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;"""
ELSE = """*) echo '{"status":"Not supported"}' ;;"""
HANGS = 'mount) trap "" TERM; echo $$ >> {pids}; sleep 1000 ;;'
FLOODS = "mount) while :; do printf '%01000d' 0; done ;;"
LIES = "mount) echo mounted; exit 0 ;;"


class Drivers:
    """The plugin directory of an agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pids = directory / ".pids"

    def install(self, name: str, script: str) -> None:
        """Install the driver example.com/NAME as a whole."""
        path = self.directory / f"example.com~{name}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(".new").write_text(f"#!/bin/sh\n{script}")
        path.with_name(".new").chmod(0o755)
        path.with_name(".new").replace(path)

    def install_bad(self, name: str, mount: str) -> None:
        """Install a driver with this ``mount``; its ``unmount`` is not supported."""
        mount = mount.format(pids=shlex.quote(str(self.pids)))
        self.install(name, f'case "$1" in\n{INIT}\n{mount}\n{ELSE}\nesac\n')

    def hanging(self) -> list[int]:
        """Processes of ``mount`` that hang now."""
        found = [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []
        return [pid for pid in found if Path(f"/proc/{pid}/cmdline").exists()]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Drivers:
    """The plugin directory, with one good driver."""
    made = Drivers(tmp_path_factory.mktemp("flex") / "plugins")
    made.install("tmpfs", TMPFS_SCRIPT)
    return made


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], drivers: Drivers) -> Bench:
    return make_bench(flags=(f"--volume-plugin-dir={drivers.directory}",))


def using(driver: str, **source: Any) -> dict[str, Any]:
    """Parts of a manifest with one volume of the driver example.com/DRIVER."""
    volume = {"name": "data", "flexVolume": {"driver": f"example.com/{driver}", **source}}
    return {
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        "spec": {"volumes": [volume]},
    }


def volumes(agent: PrivateAgent) -> dict[str, dict[str, Any]]:
    """Volumes as the command line shows them, by pod without the node's name."""
    items = msgspec.json.decode(agent.cli("get", "volumes", "-o", "json").stdout)["items"]
    return {one["pod"].removesuffix(f"-{agent.node_name}"): one for one in items}


def left(agent: PrivateAgent) -> list[str]:
    """Mounts and directories of pods."""
    mounts = [one.target for one in mounts_below(read_mounts(), agent.root_dir / "pods")]
    return [*mounts, *(str(path) for path in (agent.root_dir / "pods").iterdir())]


def test_a_pod_with_a_good_driver_is_not_affected_by_bad_ones(bench: Bench, drivers: Drivers) -> None:
    bad = {"hangs": HANGS, "floods": FLOODS, "lies": LIES}
    for name, mount in bad.items():
        drivers.install_bad(name, mount)
        bench.put(name, **using(name))
    until(drivers.hanging, "a driver hangs")
    bench.put("good", "echo written > /data/file; cat /data/file; sleep 1000 & wait", **using("tmpfs"))
    bench.ready("good")
    until(lambda: "written" in bench.logs("good"), "the log of the good pod")
    assert "more output than 1 MiB" in bench.event("floods", "FailedMount")["message"]
    assert "its output is no JSON object" in bench.event("lies", "FailedMount")["message"]
    shown = volumes(bench.agent)
    assert (shown["good"]["state"], shown["hangs"]["state"]) == ("ready", "preparing")
    assert "mount: exit code 0, and its output is no JSON object" in shown["lies"]["message"]
    described = bench.agent.cli("describe", "volume", f"lies-{bench.agent.node_name}/data").stdout
    assert "'mounted'" in described
    bench.remove("good", *bad)
    until(lambda: not left(bench.agent), "nothing of the pods is left")
    until(lambda: not drivers.hanging(), "no process of a driver is left")


def test_a_pod_waits_for_its_driver_and_the_driver_for_its_volumes(bench: Bench, drivers: Drivers) -> None:
    bench.put("waits", **using("later"))
    message = bench.event("waits", "FailedMount")["message"]
    assert "no executable" in message
    assert "install the driver there" in message
    drivers.install("later", TMPFS_SCRIPT)
    bench.ready("waits")
    path = drivers.directory / "example.com~later"
    path.rename(drivers.directory / ".away")
    (bench.manifests / "waits.json").unlink()
    assert "install the driver there" in bench.event("waits", "FailedKillPod")["message"]
    (drivers.directory / ".away").rename(path)
    bench.agent.wait_gone("waits")
    until(lambda: not left(bench.agent), "nothing of the pod is left")


def test_an_agent_that_is_killed_during_a_mount_ends_it_and_releases_the_volume(
    bench: Bench, drivers: Drivers
) -> None:
    drivers.install_bad("hangs", HANGS)
    bench.put("good", **using("tmpfs"))
    bench.ready("good")
    bench.put("hangs", **using("hangs"))
    (first,) = until(drivers.hanging, "a driver hangs")
    bench.agent.kill()
    for name in ("good", "hangs"):
        (bench.manifests / f"{name}.json").unlink()
    bench.agent.start()
    until(lambda: not left(bench.agent), "nothing of the pods is left")
    until(lambda: first not in drivers.hanging(), "the process of the killed agent has ended")
