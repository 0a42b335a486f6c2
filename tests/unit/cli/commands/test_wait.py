"""``kubeletx wait``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.status import PodCondition
from tests.unit.cli.commands.objects import Run, pod


def ready(value: str, name: str = "web") -> Pod:
    made = pod(name)
    return replace(made, status=replace(made.status, conditions=(PodCondition(type="Ready", status=value),)))


def test_a_condition_that_is_there_is_met_at_once(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(ready("True"))
    for args in (("pod/web",), ("pod", "web"), ("pods", "-l", "a=1"), ("po", "--all")):
        result = kubeletx("wait", *args, "--for=condition=ready", "--timeout=0s")
        assert (result.exit_code, result.stdout) == (0, "pod/web condition met\n"), result.stderr
    assert kubeletx("wait", "pod/web", "--for=condition=Ready=false", "--timeout=0s").exit_code == 1


def test_wait_sees_a_change(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(ready("False"))
    looked, list_pods = [], agent.backend.list_pods

    async def list_and_change() -> Any:
        pods = await list_pods()
        looked.append(pods)
        agent.backend.put(ready("True"))
        return pods

    agent.backend.list_pods = list_and_change
    result = kubeletx("wait", "pod/web", "--for=condition=Ready", "-o", "name")
    assert (result.exit_code, result.stdout, len(looked)) == (0, "pod/web\n", 2)


def test_time_that_is_over_is_an_error_for_each_object(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(ready("False"))
    agent.backend.put(ready("True", "db"))
    result = kubeletx("wait", "pods", "--all", "--for=condition=Ready", "--timeout=0s")
    assert (result.exit_code, result.stdout) == (1, "pod/db condition met\n")
    assert result.stderr == "Error: timed out waiting for the condition on pods/web\n"


def test_an_object_that_is_gone_or_replaced_is_deleted(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("wait", "pod/web", "--for=delete").exit_code == 0
    agent.backend.put(pod())
    list_pods = agent.backend.list_pods

    async def list_and_replace() -> Any:
        pods = await list_pods()
        agent.backend.put(replace(pod(), metadata=replace(pod().metadata, uid="uid-2")))
        return pods

    agent.backend.list_pods = list_and_replace
    result = kubeletx("wait", "pod/web", "--for=delete")
    assert (result.exit_code, result.stdout) == (0, "pod/web condition met\n")


def test_an_object_that_is_missing_can_be_waited_for(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("wait", "pod/web", "--for=condition=Ready")
    assert (result.exit_code, result.stderr) == (1, "Error: pod 'web' not found\n")
    assert kubeletx("wait", "pod/web", "--for=create", "--timeout=0s").exit_code == 1
    agent.backend.put(pod())
    assert kubeletx("wait", "pod/web", "--for=create", "--timeout=0s").exit_code == 0
    assert "no matching resources" in kubeletx("wait", "pods", "-l", "b", "--for=create").stderr


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("{.status.phase}=Running", 0),
        ("'{.status.phase}'=Running", 0),
        ("status.phase=Failed", 1),
        ("{.metadata.labels.a}", 0),
        ("{.metadata.labels.absent}", 1),
        ('{.status.conditions[?(@.type=="Ready")].status}=True', 0),
        ("{.spec.containers[*].name}=web", 0),
    ],
)
def test_a_field_can_be_waited_for(path: str, code: int, agent: Any, kubeletx: Run) -> None:
    agent.backend.put(ready("True"))
    assert kubeletx("wait", "pod/web", f"--for=jsonpath={path}", "--timeout=0s").exit_code == code


@pytest.mark.parametrize(
    "args", [("pods", "--for=delete"), ("pod/web", "--for=ready"), ("pod/web", "--all", "--for=delete")]
)
def test_what_cannot_be_waited_for_is_a_mistake(args: tuple[str, ...], agent: Any, kubeletx: Run) -> None:
    assert kubeletx("wait", *args).exit_code == 2
