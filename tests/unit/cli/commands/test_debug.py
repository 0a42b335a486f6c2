"""``kubeletx debug``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.status import ContainerState, ContainerStateTerminated, ContainerStatus
from tests.unit.cli.commands.objects import Run, pod


def spec_of(agent: Any) -> Any:
    return agent.backend.pods["default", "web"].spec


def with_container(name: str) -> Pod:
    made = pod()
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=3))
    status = replace(
        made.status,
        ephemeral_container_statuses=(
            ContainerStatus(name=name, ready=False, restart_count=0, image="", image_id="", state=ended),
        ),
    )
    return replace(made, status=status)


def test_a_container_is_added_to_the_pod(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx(
        "debug", "web", "--image=tools", "-c", "d1", "--target=web", "--env=A=b=c", "--", "ls", "-l"
    )
    assert (result.exit_code, result.output) == (0, "")
    result = kubeletx("debug", "pod/web", "--image=tools")
    assert result.stderr.startswith("Defaulting debug container name to debugger-")
    first, second = spec_of(agent).ephemeral_containers
    assert (first.name, first.image, first.command) == ("d1", "tools", ("ls", "-l"))
    assert (first.target_container_name, first.env[0].name, first.env[0].value) == ("web", "A", "b=c")
    assert second.name.startswith("debugger-")


def test_a_container_that_ends_at_once_shows_its_log_and_exit_code(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(with_container("d1"))
    result = kubeletx("debug", "web", "--image=tools", "-i", "-c", "d2", "--timeout=0s")
    assert result.exit_code == 1
    assert "container d2 does not run after 0s" in result.stderr
    agent.backend.logs = {"d1": [b"listed\n"]}

    async def replace_pod(made: Pod, *_: Any, **__: Any) -> Any:
        agent.backend.put(with_container("d1"))
        return await agent.backend.apply_pod(made, dry_run=True)

    agent.backend.replace_pod = replace_pod
    result = kubeletx("debug", "web", "--image=tools", "-i", "-c", "d1")
    assert (result.exit_code, result.stdout) == (3, "listed\n")


@pytest.mark.parametrize("args", [("web",), ("web", "--image=a", "--env=b")])
def test_wrong_words_of_debug_are_mistakes(args: tuple[str, ...], agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    assert kubeletx("debug", *args).exit_code == 2


def test_pods_of_the_cluster_are_debugged_there(agent: Any, kubeletx: Run) -> None:
    made = pod()
    agent.backend.put(
        replace(made, metadata=replace(made.metadata, annotations={names.CONFIG_SOURCE: "api"}))
    )
    assert "use 'kubectl debug pod web" in kubeletx("debug", "web", "--image=a").stderr
