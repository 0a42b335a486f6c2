"""Locks that keep a second agent from running."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.agent.lifecycle import hold_node, hold_state, run_agent

from kubeletx.api import Conflict, InvalidConfig
from kubeletx.testing import FakeClock


def test_a_state_directory_has_one_agent(tmp_path: Path) -> None:
    with hold_state(tmp_path / "state"):
        with pytest.raises(Conflict, match=r"another storage agent, .*, has state directory"):
            hold_state(tmp_path / "state").__enter__()
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    with hold_state(tmp_path / "state"):
        pass


def test_a_node_name_has_one_agent_in_each_file_of_records(tmp_path: Path) -> None:
    records = tmp_path / "records" / "records.db"
    with (
        hold_node(records, "n1"),
        hold_node(records, "n2"),
        hold_node(tmp_path / "other.db", "n1"),
        pytest.raises(Conflict, match=r"node n1 .* give each agent a --node-name of its own"),
    ):
        hold_node(records, "n1").__enter__()
    with hold_node(records, "n1"), hold_node(None, "n1"):
        assert records.parent.stat().st_mode & 0o777 == 0o700


def test_the_directory_of_the_records_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with hold_node(tmp_path / "records.db", "x" * 253):
        assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_records_at_a_place_that_cannot_exist_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match=r"--records: .*file.*; use another one"):
        hold_node(tmp_path / "file" / "records.db", "n1").__enter__()


async def test_a_second_agent_of_the_node_does_not_start(tmp_path: Path) -> None:
    """The second agent would remove the entries of the first, as if their journal were lost."""
    config = AgentConfig(
        node_name="n1",
        boot_id="b",
        state_dir=tmp_path / "state",
        records=tmp_path / "records.db",
        volume_plugin_dirs=(tmp_path / "plugins",),
    )
    with (
        hold_node(config.records, "n1"),
        pytest.raises(
            Conflict, match="another storage agent, a process that is not visible here, is node n1"
        ),
    ):
        await run_agent(config, clock=FakeClock(), stop=asyncio.Event())
    assert not (tmp_path / "plugins").exists()
