"""Lets the tests of this folder import `agent_model`, and gives them an agent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.linux.libc import call
from kubeletx.linux.mounts import mounts_below, read_mounts
from tests.unit.agent.agent_model import AgentModel


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentModel]:
    """An agent with two fake runtimes, not started. File systems of its pods' secrets are unmounted at the end."""
    yield AgentModel(tmp_path)
    for mount in reversed(mounts_below(read_mounts(), tmp_path)):
        call("umount2", os.fsencode(mount.target), 0)
