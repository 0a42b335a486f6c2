"""Verbs of a real guest with probes, and what its users are told: one machine, which the tests share in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.machines import load_machine_image
from tests.integration.support.bench import Bench, restarts
from tests.integration.support.vm_pods import BOOT_SECONDS, make_machines

LONG = 4 * BOOT_SECONDS
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = make_machines(make_bench, lab, tmp_path_factory.mktemp("verbs"))
    put_manifest(bench.manifests, probed("probed"))
    bench.ready("probed", seconds=LONG)
    return bench


def probed(name: str) -> dict[str, Any]:
    """A machine whose guest serves pages; its liveness probe fails six seconds after they stop."""
    page = {"httpGet": {"path": "/", "port": 80}, "timeoutSeconds": 2}
    container = {
        "name": name,
        "image": str(load_machine_image()),
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}, "requests": {"cpu": "10m"}},
        "startupProbe": {**page, "periodSeconds": 1, "failureThreshold": LONG},
        "livenessProbe": {**page, "periodSeconds": 3, "failureThreshold": 2},
        "readinessProbe": {**page, "periodSeconds": 1},
    }
    notes = {"kubeletx.io/workload-type": "vm"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 20},
    }


def vm(bench: Bench, *words: str) -> tuple[int, str]:
    done = bench.agent.cli("vm", *words, timeout_seconds=200)
    return done.returncode, done.stdout + done.stderr


def is_ready(pod: Any) -> bool:
    return bool(pod.status.container_statuses and pod.status.container_statuses[0].ready)


def test_a_guest_that_reboots_is_probed_from_the_start_and_not_killed(bench: Bench) -> None:
    code, text = vm(bench, "reboot", "probed-lab")
    assert code == 0, text
    bench.until("probed", lambda pod: restarts(pod, "probed") == 1 and not is_ready(pod))
    pod = bench.until("probed", is_ready, seconds=LONG)
    assert restarts(pod, "probed") == 1
    assert "Killing" not in bench.reasons("probed")


def test_a_machine_that_was_stopped_and_started_is_ready_when_its_guest_is(bench: Bench) -> None:
    code, text = vm(bench, "stop", "probed-lab", "--timeout", "90s")
    assert code == 0, text
    for verb in ("suspend", "pause"):
        code, text = vm(bench, verb, "probed-lab")
        assert code == 1
        assert f"cannot {verb} machine default/probed-lab: it is off" in text
    code, text = vm(bench, "start", "probed-lab", "--timeout", "90s")
    assert code == 0, text
    assert not is_ready(bench.pod("probed"))
    bench.until("probed", is_ready, seconds=LONG)
    assert "Killing" not in bench.reasons("probed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nic", "attach", "probed-lab", "eth1", "--network", "none"), "'none' is not in libvirt.networks"),
        (("resize", "probed-lab", "--memory", "900Ti"), "cannot resize machine default/probed-lab"),
        (("resize", "probed-lab", "--cpu", "2"), "cannot resize machine default/probed-lab"),
        (("snapshot", "delete", "probed-lab", "none"), "has no snapshot 'none'"),
        (("reboot", "probed-lab", "--cancel"), "has no pending reboot"),
    ],
)
def test_what_a_machine_cannot_have_exits_with_the_reason(
    bench: Bench, words: tuple[str, ...], said: str
) -> None:
    code, text = vm(bench, *words)
    assert code == 1
    assert said in text
    assert text.count("cannot resize") <= 1


def test_a_word_that_is_none_is_a_wrong_argument(bench: Bench) -> None:
    code, text = vm(bench, "nic", "attach", "probed-lab", "eth 1")
    assert code == 2
    assert "'eth 1' is not an interface name" in text


def test_a_suspended_machine_shuts_down_in_order_when_its_pod_is_deleted(bench: Bench) -> None:
    code, text = vm(bench, "suspend", "probed-lab", "--timeout", "90s")
    assert code == 0, text
    bench.remove("probed", seconds=150)
    assert "MemoryDiscarded" not in bench.reasons("probed")
