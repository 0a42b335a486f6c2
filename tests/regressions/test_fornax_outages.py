"""Outages of the database, and of cores under load: few lines of the log, and the true state at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Unavailable
from kubeletx.fornax.node_records import NodeRecords
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx_testing.waiting import until
from tests.unit.fornax.core_model import rig


async def test_a_node_whose_database_cannot_be_written_is_connected_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that started on a full disk did not connect; later each waiting report was a line in each second."""
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        await made.stop_node()
        fails = 0

        async def fail(*_: Any) -> None:
            nonlocal fails
            fails += 1
            raise Unavailable("disk full")

        with monkeypatch.context() as full, capture_logs() as logs:
            full.setattr(NodeRecords, "save_node", fail)
            full.setattr(NodeRecords, "save_cores", fail)
            await made.start_node(core)
            await until(lambda: core.streams == 2 and made.status(core).connected)
            for name in ("a", "b", "c"):
                made.content.set_pod(name, pb.PodState.Running)
            await until(lambda: fails > 3)
        assert [one["event"] for one in logs if one["log_level"] == "warning"] == [
            "Failed to store the cores of the node",
            "Postponed reports: no revision could be stored",
        ]
        await made.until_equal(core)
