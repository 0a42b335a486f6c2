"""A real guest that is evicted: what its emulator holds counts, the guest is asked to shut down, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import names
from kubeletx_testing.lab import Lab, PrivateAgent
from kubeletx_testing.lab.machines import UP, load_machine_image
from tests.integration.support.clusters import (
    API_SERVERS,
    ApiServer,
    ClusterNode,
    cluster_agent,
    condition,
    is_ready,
    running_api,
)
from tests.integration.support.machines import emulators, wait_console
from tests.integration.support.survival import until
from tests.integration.support.vm_pods import make_machines

pytestmark = pytest.mark.timeout(300)  # above what the waits of any one test allow together

BOOT_SECONDS = 150
GIVEN = "Threshold quantity: 1Ei, available: "


@pytest.fixture(params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    yield from running_api(request.param, tmp_path / "api")


def test_a_guest_that_takes_more_than_it_asked_for_goes_first_under_memory_pressure(
    api: ApiServer, make_agent: Callable[..., PrivateAgent], lab: Lab, tmp_path: Path
) -> None:
    def make_node(**arguments: Any) -> Any:
        return cluster_agent(api, make_agent, manifest_dir=None, **arguments)

    node: ClusterNode = make_machines(make_node, lab, tmp_path)  # type: ignore[assignment]
    node.apply(
        "vm",
        annotations={names.WORKLOAD_TYPE: "vm"},
        container={
            "name": "vm",
            "image": str(load_machine_image()),
            "command": [],
            "resources": {"requests": {"memory": "16Mi"}, "limits": {"cpu": "1", "memory": "192Mi"}},
        },
        terminationGracePeriodSeconds=30,
    )
    node.apply("modest", container={"resources": {"requests": {"memory": "64Mi"}}})
    node.wait_running("modest")
    wait_console(node.agent, "vm", UP, timeout_seconds=BOOT_SECONDS)
    uid = node.wait("vm", is_ready, "Ready")["metadata"]["uid"]
    node.agent.stop()
    # A soft threshold, since a hard one is taken from what pods may use.
    soft = ("--eviction-soft=memory.available<1Ei", "--eviction-soft-grace-period=memory.available=1s")
    node.agent.flags = (*node.agent.flags, *soft, "--eviction-max-pod-grace-period=30")
    node.agent.start()
    evicted = node.wait("vm", lambda pod: pod["status"]["phase"] == "Failed", "evicted")
    assert evicted["status"]["reason"] == "Evicted"
    assert f"The node was low on resource: memory. {GIVEN}" in evicted["status"]["message"]
    assert "Container vm was using " in evicted["status"]["message"]
    assert ", request is 16Mi, has larger consumption of memory. " in evicted["status"]["message"]
    assert condition(evicted, "DisruptionTarget")["reason"] == "TerminationByKubelet"
    (status,) = evicted["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "Completed", "it was asked, and shut down"
    assert "Evicted" in node.events("vm")
    assert emulators(node.agent) == {}
    until(lambda: not (node.agent.root_dir / "pods" / uid / "volumes").exists(), "its volumes are gone")
    node.wait("modest", lambda pod: pod["status"]["phase"] == "Failed", "the next one")
    until(lambda: condition(node.node() or {}, "MemoryPressure").get("status") == "True", "the node says it")
