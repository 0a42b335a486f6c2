"""A machine on standby, with a whole agent and a libvirtd of its own: one guest, which the tests share in order.

Each test leaves the machine on standby or running; `awake` and `rests` change it to the state that a test needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.machines import load_machine_image
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import BOOT_SECONDS, make_machines

LONG = 4 * BOOT_SECONDS
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-standby")
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def tiny_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk of a machine that needs no boot."""
    return make_tiny_machine_image(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench],
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    tiny_image: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    images = [str(load_machine_image().parent), str(tiny_image.parent)]
    directory = tmp_path_factory.mktemp("standby")
    bench = make_machines(make_bench, lab, directory, endpoint=libvirtd.endpoint, imageDirectories=images)
    put_manifest(bench.manifests, manifest())
    return bench


def manifest() -> dict[str, Any]:
    """A machine that rests, by its annotation, once its guest agent runs commands."""
    container = {
        "name": "vm",
        "image": str(load_machine_image()),
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}, "requests": {"cpu": "10m"}},
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 10},
    }
    notes = {"kubeletx.io/workload-type": "vm", "kubeletx.io/standby": "standby"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "vm", "annotations": notes},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 60},
    }


def reason(pod: Pod) -> str:
    """The reason of the pod's condition kubeletx.io/Standby."""
    return next((one.reason or "" for one in pod.status.conditions if one.type == "kubeletx.io/Standby"), "")


def power(pod: Pod) -> str | None:
    status = pod.status.virtual_machine_status
    return status.power_state if status is not None else None


def command(bench: Bench, *words: str) -> str:
    done = bench.agent.cli(*words, timeout_seconds=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def boot(bench: Bench) -> str:
    """The id of the guest's present boot, asked by exec, which thaws it."""
    return command(bench, "exec", "vm-lab", "--", "cat", "/proc/sys/kernel/random/boot_id").strip()


def shown(bench: Bench) -> str:
    """The column STATUS of ``kubeletx get pods``."""
    lines = command(bench, "get", "pods").splitlines()
    return next(line.split()[2] for line in lines if line.startswith("vm-lab"))


def standby(bench: Bench, *words: str) -> None:
    command(bench, "pod", words[0], "vm-lab", *words[1:], "--timeout", "120s")


@pytest.fixture
def rests(bench: Bench) -> Bench:
    """The bench once the machine is on standby."""
    bench.until("vm", lambda pod: reason(pod) in ("Standby", "Hibernated"), seconds=LONG)
    return bench


def test_a_machine_with_the_annotation_boots_becomes_ready_and_rests(rests: Bench) -> None:
    assert shown(rests) == "Standby"
    assert rests.event("vm", "Standby")["message"].startswith("Froze machine vm in ")
    assert "Standby since" in " ".join(command(rests, "describe", "pod", "vm-lab").split())


def test_a_command_thaws_the_guest_of_the_same_boot_from_the_memory_and_from_the_disk(rests: Bench) -> None:
    first = boot(rests)
    rests.until("vm", lambda pod: reason(pod) == "Standby", seconds=LONG)
    standby(rests, "standby", "--hibernate")
    pod = rests.until("vm", lambda pod: reason(pod) == "Hibernated")
    assert power(pod) == "suspended"
    assert "MiB before, 0.0 MiB after" in command(rests, "describe", "pod", "vm-lab")
    assert boot(rests) == first
    rests.until("vm", lambda pod: reason(pod) == "Hibernated", seconds=LONG)


def test_killed_agent_and_restarted_libvirtd_find_the_machine_at_rest_and_wake_it(
    rests: Bench, libvirtd: PrivateLibvirtd
) -> None:
    for words, state in ((("standby", "--hibernate"), "suspended"), (("standby",), "paused")):
        standby(rests, *words)
        rests.agent.kill()
        libvirtd.stop()
        libvirtd.start()
        rests.agent.start()
        pod = rests.until("vm", lambda pod, state=state: power(pod) == state and reason(pod), seconds=LONG)
        assert reason(pod) in ("Standby", "Hibernated")
    before = rests.agent.pod("vm")
    standby(rests, "activate")
    pod = rests.until("vm", lambda pod: power(pod) == "running" and reason(pod) == "NotFrozen")
    assert before is not None
    assert pod.status.container_statuses[0].restart_count == before.status.container_statuses[0].restart_count


def test_the_last_command_of_both_families_counts(rests_or_runs: Bench) -> None:
    bench = rests_or_runs
    command(bench, "vm", "pause", "vm-lab")
    assert shown(bench) == "Paused"
    assert bench.agent.cli("exec", "vm-lab", "--", "true").returncode != 0, "vm pause is not standby"
    standby(bench, "standby")
    bench.until("vm", lambda pod: reason(pod) == "Standby")
    command(bench, "vm", "resume", "vm-lab")
    bench.until("vm", lambda pod: power(pod) == "running")


@pytest.fixture
def rests_or_runs(bench: Bench) -> Bench:
    """The bench once the guest has booted."""
    bench.until("vm", lambda pod: bool(reason(pod)), seconds=LONG)
    return bench


def test_a_machine_with_shared_directories_keeps_running_with_the_reason_and_can_be_frozen(
    bench: Bench, tiny_image: Path, tmp_path: Path
) -> None:
    made = machine_manifest(
        "shares",
        image=str(tiny_image),
        machine={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        spec={"volumes": [{"name": "data", "emptyDir": {}}]},
    )
    made["metadata"].setdefault("annotations", {})["kubeletx.io/standby"] = "hibernated"
    put_manifest(bench.manifests, made)
    pod = bench.until("shares", lambda pod: reason(pod) == "FreezeFailed", seconds=LONG)
    assert power(pod) == "running"
    done = bench.agent.cli("pod", "standby", "--hibernate", "shares-lab", timeout_seconds=200)
    assert done.returncode == 1
    assert "cannot hibernate pod default/shares-lab" in done.stderr
    assert "it shares directories with the node" in done.stderr
    command(bench, "pod", "standby", "shares-lab")
    bench.until("shares", lambda pod: reason(pod) == "Standby" and power(pod) == "paused")
    bench.remove("shares", seconds=LONG)


def test_a_hibernated_machine_shuts_down_in_order_when_its_pod_is_deleted(rests_or_runs: Bench) -> None:
    bench = rests_or_runs
    standby(bench, "standby", "--hibernate")
    bench.until("vm", lambda pod: power(pod) == "suspended")
    bench.remove("vm", seconds=LONG)
    assert "MemoryDiscarded" not in bench.reasons("vm")
    assert "Activated" in bench.reasons("vm")
