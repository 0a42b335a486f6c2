"""Lets the tests of this folder import `agent_model`, and gives them an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.agent_model import AgentModel


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    """An agent with two fake runtimes, not started."""
    return AgentModel(tmp_path)
