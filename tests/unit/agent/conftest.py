"""Lets the tests of this folder import `agent_model`, and gives them an agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_model import AgentModel


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    """An agent with two fake runtimes, not started."""
    return AgentModel(tmp_path)
