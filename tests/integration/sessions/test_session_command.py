"""``kubeletx session`` on a whole agent with a really frozen pod; the SDK plays the application from outside of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from kubeletx_session import AsyncSessionClient, Session, Settings

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest

ANNOTATIONS = {"kubeletx.io/sessions": "true", "kubeletx.io/standby": "hibernated"}


def is_frozen(pod: Pod) -> bool:
    return any(one.type == "kubeletx.io/Standby" and one.status == "True" for one in pod.status.conditions)


async def test_a_session_of_the_command_line_wakes_a_frozen_pod(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, manifests: Path
) -> None:
    agent = make_agent(endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc")
    opened: list[bytes] = []

    async def on_open(session: Session) -> None:
        opened.append(session.data)
        session.join("ann")

    async def run(*words: str) -> str:
        return (await asyncio.to_thread(agent.cli, "session", *words)).stdout

    agent.start()
    put_manifest(manifests, pod_manifest("game", metadata={"annotations": ANNOTATIONS}))
    pod = await asyncio.to_thread(agent.wait_for, "game")
    settings = Settings(
        directory=agent.root_dir / "pods" / pod.uid / "session",
        service=f"unix://{agent.root_dir}/sessions/socket/session.sock",
        pod_id="default/game-lab",
    )
    async with AsyncSessionClient(on_open, settings=settings):
        await asyncio.to_thread(agent.wait_for, "game", is_frozen)
        assert "session/s1 " in await run(
            "open", "game-lab", "--name", "s1", "--data", "blue", "--open-timeout", "60s"
        )
        assert opened == [b"blue"]
        await asyncio.to_thread(agent.wait_for, "game", lambda found: not is_frozen(found))
        (item,) = json.loads(await run("list", "-o", "json"))["items"]
        assert (item["name"], item["pod"], item["state"]) == ("s1", "default/game-lab", "Live")
        assert "ann" in await run("describe", "s1")
        assert await run("close", "s1") == "session/s1 Terminated\n"
        await asyncio.to_thread(agent.wait_for, "game", is_frozen)
