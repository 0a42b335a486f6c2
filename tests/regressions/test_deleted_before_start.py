"""A pod that is deleted before a container of it ran becomes Failed, so that the Job controller drops its finalizer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import SystemClock, UnitState
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Container, ContainerState, ContainerStateTerminated, Pod, PodStatus
from kubeletx.pods.model.facts import Deletion, DesiredPod
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.status_model import container, exited, facts, pod, status_of, unit

DELETION = Deletion(requested_at=0.0, grace_seconds=30)
LOST = ContainerStateTerminated(
    exit_code=137,
    reason="ContainerStatusUnknown",
    message="The container could not be located when the pod was terminated",
)
INIT = (Container(name="i", image="img"), Container(name="j", image="img"))
NODE = "node-of-issue-10"


def deleted(desired: DesiredPod) -> DesiredPod:
    return replace(desired, deletion=DELETION)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_every_container_that_never_ran_is_shown_as_terminated(policy: str) -> None:
    status = status_of(deleted(pod("a", "b", policy=policy, source="api")), facts())
    assert status.phase == "Failed"
    assert [one.state for one in status.container_statuses] == [ContainerState(terminated=LOST)] * 2


def test_a_pod_that_waits_for_a_runtime_ends_too() -> None:
    unbound = facts(runtime=None, snapshot=None, previous_status=PodStatus(phase="Pending"))
    assert status_of(deleted(pod("a", source="api")), unbound).phase == "Failed"


def test_of_init_containers_the_ones_that_were_due_are_terminated() -> None:
    status = status_of(deleted(pod("a", init=INIT, source="api")), facts())
    assert status.phase == "Failed"
    assert container(status, "i").state.terminated == LOST
    assert container(status, "j").state.terminated is None
    assert container(status, "a").state.terminated is None


def test_an_init_container_that_ended_keeps_its_own_end() -> None:
    status = status_of(deleted(pod("a", init=INIT, source="api")), facts(exited("i"), exited("j")))
    ends = [one.state.terminated for one in status.init_container_statuses]
    assert [end.exit_code for end in ends if end is not None] == [0, 0]
    assert container(status, "a").state.terminated == LOST


def test_a_pod_whose_containers_all_succeeded_stays_succeeded() -> None:
    assert status_of(deleted(pod("a", policy="Never", source="api")), facts(exited("a"))).phase == "Succeeded"


@pytest.mark.parametrize(
    "seen",
    [
        facts(unit("a")),
        facts(unit("a", UnitState.UNKNOWN)),
        facts(in_flight=frozenset({"sandbox"})),
        facts(in_flight=frozenset({"unit/a"})),
        facts(unsettled_until=2.0),
        facts(changed_at=2.0),
    ],
)
def test_nothing_has_ended_that_may_still_run(seen: Any) -> None:
    assert status_of(deleted(pod("a", "b", source="api")), seen).phase not in ("Failed", "Succeeded")


def test_a_static_pod_is_not_failed_by_its_removal() -> None:
    assert status_of(deleted(pod("a", source="file")), facts()).phase == "Pending"


async def test_the_last_status_of_a_pod_without_its_image_is_failed_at_the_deletions_generation(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    last: dict[str, PodStatus] = {}
    async with node.running() as manager:
        node.runtimes["one"].backend.registry = {}
        node.services.board.subscribe(
            lambda one, _facts, status: last.update({one.uid: status} if status else {})
        )
        wanted = a_pod(runtime="one", containers=1)
        image = (Container(name="c0", image="example.com/missing:1"),)
        wanted = replace(
            wanted,
            metadata=replace(wanted.metadata, generation=1),
            spec=replace(wanted.spec, containers=image),
        )
        manager.update("api", wanted)
        await node.until(
            lambda: last and last[wanted.uid].container_statuses[0].state.waiting.reason == "ErrImagePull"  # type: ignore[union-attr]
        )
        manager.update("api", replace(wanted, metadata=replace(wanted.metadata, generation=2)))
        manager.remove("api", wanted.uid, 30)
        await node.until(lambda: not manager.workers)
    status = last[wanted.uid]
    assert (status.phase, status.observed_generation) == ("Failed", 2)
    assert status.container_statuses[0].state.terminated == LOST
    assert {one.observed_generation for one in status.conditions} == {2}


class Sink:
    """A pod manager that has nothing."""

    def update(self, source: str, pod: Pod) -> None: ...

    def remove(
        self, source: str, uid: str, grace_seconds: int | None = None, force: bool = False
    ) -> None: ...

    def synced(self, source: str) -> None: ...

    def invalid(self, *_: object) -> None: ...

    def valid(self, *_: object) -> None: ...


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerDouble]:
    """A double and a status reporter at work, on a node that runs nothing."""
    with ApiServerDouble(tmp_path / "api") as double:
        double.settings.service_account_admission = False
        double.admin.create("nodes", {"metadata": {"name": NODE}})
        clock = SystemClock()
        client = KubeClient(load_kubeconfig(double.node_kubeconfig(NODE)), clock=clock)
        pods = ApiPods(Sink(), is_here=lambda _: False)
        reporter = StatusReporter(client, pods, clock=clock, is_here=lambda _: False)
        reflector = Reflector(client, PODS, Pod, pods, clock=clock, field_selector=f"spec.nodeName={NODE}")
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(reporter.run())]
        async with asyncio.timeout(60):
            yield double
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await until(lambda: not connections(double))


async def test_a_deleted_pod_that_this_node_never_started_is_failed_and_then_let_go(
    api: ApiServerDouble,
) -> None:
    made = {
        "metadata": {"name": "a", "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
    }
    api.admin.create("pods", made, namespace="default")
    api.admin.delete("pods", "a", namespace="default")

    def seen() -> dict[str, Any]:
        found: dict[str, Any] = api.admin.get("pods", "a", namespace="default")
        return found

    def is_let_go() -> bool:
        pod = seen()
        return pod["status"]["phase"] == "Failed" and not pod["metadata"]["deletionGracePeriodSeconds"]

    await until(is_let_go)
    status, metadata = seen()["status"], seen()["metadata"]
    assert status["observedGeneration"] == metadata["generation"] == 2
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    api.admin.patch("pods", "a", {"metadata": {"finalizers": None}}, namespace="default")
    assert api.admin.list("pods", namespace="default")["items"] == []
