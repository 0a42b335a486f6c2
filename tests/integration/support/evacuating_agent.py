"""``python -m tests.integration.support.evacuating_agent FLAGS``: ``kubeletx FLAGS`` with a part that has clients of pods.

A pod has a client while the directory in the variable `CLIENTS` has a file with the pod's name. At the begin of an
evacuation its deadline, in seconds from then, is written to ``<name>.leaves``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubeletx_testing.lab import PrivateAgent

if TYPE_CHECKING:
    from kubeletx.agent.parts.part import PartContext
    from kubeletx.agent.parts.pods import PodsAssembly

CLIENTS: Final = "KUBELETX_TEST_CLIENTS"
ROOT: Final = Path(__file__).parents[3]


class EvacuatingAgent(PrivateAgent):
    """A private agent that runs this program."""

    def argv(self) -> list[str]:
        return [sys.executable, "-m", __name__, *super().argv()[1:]]


def add_clients(ctx: PartContext, pods: PodsAssembly) -> None:
    """Add the part to the agent."""
    from kubeletx.agent.parts.part import Part
    from kubeletx.api import PodUid
    from kubeletx.pods import Evacuation

    directory = Path(os.environ[CLIENTS])

    def client(uid: PodUid) -> Path:
        return directory / pods.manager.workers[uid].desired.pod.name

    async def evacuate(uid: PodUid, deadline: float) -> None:
        path = client(uid)
        left = deadline - time.monotonic()
        path.with_name(f"{path.name}.leaves").write_text(str(left))
        while path.exists() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    hook = Evacuation(is_needed=lambda uid: client(uid).exists(), run=evacuate)
    ctx.made.add(Part(name="clients", evacuation=hook))


def main() -> None:
    """Run the agent."""
    from kubeletx.agent import assembly
    from kubeletx.agent.parts.clean_up import make_clean_up
    from kubeletx.cli import main as cli

    def make(ctx: PartContext, runtimes: Any, volumes: Any, pods: PodsAssembly) -> None:
        add_clients(ctx, pods)
        make_clean_up(ctx, runtimes, volumes, pods)

    vars(assembly)["make_clean_up"] = make
    cli.main()


if __name__ == "__main__":
    main()
