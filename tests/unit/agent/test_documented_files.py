"""docs/reference.md names every file below the root directory, and its rights."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.agent.agent_model import AgentModel, a_pod

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference.md"


def documented() -> set[str]:
    """First parts of the paths in the table."""
    table = PAGE.read_text().partition("## Files")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return {word.partition("/")[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


async def test_every_file_below_the_root_is_documented(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        await backend.runtimes.add_runtime("container:three:fake://three")
        await backend.runtimes.cordon("two")
        found = {path.name for path in (agent.root / "root").iterdir()}
        assert found <= documented()
        assert {"applied", "cordons", "runtimes.d", "pods", "manifests", "kubeletx.db"} <= found
        assert (agent.root / "root" / "applied" / "default_web.yaml").exists()
        assert (agent.root / "root" / "cordons" / "two").exists()


async def test_others_may_enter_nothing_below_the_root(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        await backend.runtimes.cordon("two")
        assert (agent.root / "root").stat().st_mode & 0o007 == 0
        assert (agent.root / "root" / "kubeletx.sock").stat().st_mode & 0o777 == 0o600
