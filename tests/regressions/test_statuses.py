"""What a kubelet shows of containers and we did not: debug containers, deadlines, restarts of all containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import UnitState
from kubeletx.api.names import ALL_CONTAINERS_RESTARTING, RESTART_GENERATION
from kubeletx.kube.types.core import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
    LocalObjectReference,
    Pod,
    PodCondition,
    PodStatus,
)
from kubeletx.pods.model.facts import ActionFailure, Deletion, UnitFacts
from kubeletx.pods.status.build import NodeIdentity, build_status
from tests.unit.pods import status_model as sm
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.pod_model import PodModel, make_pod
from tests.unit.volumes.volume_doubles import FakeCluster

PULL = ActionFailure(reason="ErrImagePull", message="not found", retry_at=110.0, delay_seconds=10.0)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one")


def with_debugger(pod: Pod) -> Pod:
    debugger = EphemeralContainer(name="debugger", image="missing", image_pull_policy="Never")
    return replace(pod, spec=replace(pod.spec, ephemeral_containers=(debugger,)))


def test_a_debug_container_shows_why_its_image_is_not_there() -> None:
    desired = sm.pod("web")
    desired = replace(desired, pod=with_debugger(desired.pod))
    known = sm.facts(sm.unit("web"), units={"debugger": UnitFacts(image_failure=PULL)})
    shown = sm.container(sm.status_of(desired, known), "debugger")
    assert shown.state.waiting is not None
    assert (shown.state.waiting.reason, shown.state.waiting.message) == ("ErrImagePull", "not found")
    later = sm.container(sm.status_of(desired, known, 105.0), "debugger")
    assert later.state.waiting is not None
    assert later.state.waiting.reason == "ImagePullBackOff"


def test_a_debug_container_that_ended_stays_as_it_ended() -> None:
    desired = sm.pod("web")
    desired = replace(desired, pod=with_debugger(desired.pod))
    failed = {"debugger": UnitFacts(image_failure=PULL)}
    known = sm.facts(sm.unit("web"), sm.exited("debugger", 3), units=failed)
    shown = sm.container(sm.status_of(desired, known), "debugger")
    assert shown.state.terminated is not None
    assert shown.state.terminated.exit_code == 3


async def test_a_debug_container_without_an_image_is_not_creating_for_ever(node: Node) -> None:
    async with node.running() as manager:
        pod = a_pod()
        await node.start(pod)
        manager.update("file", with_debugger(pod))

        def reason() -> str | None:
            shown = node.services.board.statuses[pod.uid].ephemeral_container_statuses
            return shown[0].state.waiting.reason if shown and shown[0].state.waiting else None

        await node.until(lambda: reason() == "ErrImageNeverPull")


async def test_a_deadline_ends_containers_whose_image_cannot_be_pulled(node: Node) -> None:
    async with node.running() as manager:
        container = Container(name="c0", image="missing", image_pull_policy="Never")
        pod = a_pod(active_deadline_seconds=5)
        pod = replace(pod, spec=replace(pod.spec, containers=(container,)))
        manager.update("file", pod)
        await node.until(lambda: node.phase(pod.uid) == "Failed")
        status = node.services.board.statuses[pod.uid]
        assert status.reason == "DeadlineExceeded"
        ended = status.container_statuses[0].state.terminated
        assert ended is not None
        assert (ended.exit_code, ended.reason) == (137, "ContainerStatusUnknown")


def test_an_eviction_ends_containers_that_never_ran() -> None:
    desired = sm.pod("web")
    deletion = Deletion(requested_at=50.0, grace_seconds=0, reason="Evicted", message="short of memory")
    shown = sm.status_of(replace(desired, deletion=deletion), sm.facts())
    assert shown.phase == "Failed"
    assert sm.container(shown, "web").state.terminated is not None


RULE = ContainerRestartRule(
    action="RestartAllContainers", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(88,))
)


def running_pair() -> PodModel:
    desired = make_pod(("b",), policy="Never")
    main = Container(name="a", image="i", restart_policy="Never", restart_policy_rules=(RULE,))
    spec = replace(desired.pod.spec, containers=(main, *desired.pod.spec.containers))
    model = PodModel(replace(desired, pod=replace(desired.pod, spec=spec)))
    model.settle()
    return model


def shown(model: PodModel) -> tuple[PodStatus, PodCondition]:
    status = build_status(model.desired, model.facts, model.now(), NodeIdentity(name="n"))
    return status, sm.condition(status, ALL_CONTAINERS_RESTARTING)


def test_the_condition_of_a_restart_of_all_containers_is_the_kubelets() -> None:
    model = running_pair()
    assert shown(model)[1].status == "False"
    assert shown(model)[1].reason is None
    model.exit("a", 88)
    model.facts = replace(model.facts, snapshot=model.snapshot())
    status, condition = shown(model)
    assert (condition.status, condition.reason) == ("True", "RestartAllContainersStarted")
    assert condition.message == "container exited with restart policy rule"
    waiting = sm.container(status, "a").state.waiting
    assert waiting is not None
    assert waiting.reason == "RestartingAllContainers"
    assert waiting.message == "The container is removed because RestartAllContainers in place"
    model.settle()
    model.facts = replace(model.facts, snapshot=model.snapshot())
    assert shown(model)[1].status == "False"


def test_every_container_ended_with_137_by_a_restart_of_all() -> None:
    model = running_pair()
    model.exit("a", 88)
    model.settle()
    model.facts = replace(model.facts, snapshot=model.snapshot())
    assert sorted(model.alive()) == ["a", "b"]
    assert all(unit.summary.annotations.get(RESTART_GENERATION) for unit in model.units[:1])
    for one in shown(model)[0].container_statuses:
        ended = one.last_state.terminated
        assert ended is not None
        assert (ended.exit_code, ended.reason) == (137, "RestartingAllContainers")


def test_the_condition_of_an_ended_pod_says_how_it_ended() -> None:
    model = running_pair()
    for name in ("a", "b"):
        model.exit(name, 0)
    model.facts = replace(model.facts, snapshot=model.snapshot())
    assert not any(unit.summary.state is UnitState.RUNNING for unit in model.units)
    status, condition = shown(model)
    assert status.phase == "Succeeded"
    assert (condition.status, condition.reason) == ("False", "PodCompleted")


async def test_a_missing_pull_secret_makes_its_event_although_the_image_is_present(node: Node) -> None:
    node.cluster = {"api": FakeCluster()}
    async with node.running():
        pod = a_pod(image_pull_secrets=(LocalObjectReference(name="ghost"),))
        await node.start(pod, "api")
        (said,) = [
            one.message for one in node.sink.recorded if one.reason == "FailedToRetrieveImagePullSecret"
        ]
        assert "ghost" in said
