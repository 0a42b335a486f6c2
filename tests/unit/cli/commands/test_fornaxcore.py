"""``kubeletx fornaxcore status``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from kubeletx.fornax.views import FornaxStatus, LinkStatus
from tests.unit.cli.commands.objects import Run

LINK = LinkStatus(
    address="192.0.2.1:18001",
    identifier="core-1",
    role="primary",
    connected=True,
    registered=True,
    since=datetime.now(UTC),
    acknowledged=41,
    queue=1,
    full_at=None,
    sent={"change": 48, "NODE_STATE": 1, "NODE_READY": 1},
    received=9,
    refused=0,
    failures=3,
    overflows=0,
    problem="",
)


def test_the_cores_of_the_node_are_shown(agent: Any, kubeletx: Run) -> None:
    status = FornaxStatus(
        identifier="ns/node", state="Ready", ready=True, revision=42, cores=(LINK,), repaired={"pods": 2}
    )
    agent.backend.fornaxcore = status
    lines = kubeletx("fornaxcore", "status").stdout.splitlines()
    assert lines[:2] == ["Node ns/node: Ready, ready, revision 42", "Repaired: pods 2"]
    assert lines[2].split() == (
        [
            "CORE",
            "ROLE",
            "LINK",
            "SINCE",
            "ACKNOWLEDGED",
            "QUEUE",
            "FULL",
            "STATE",
            "REFUSED",
            "FAILURES",
            "PROBLEM",
        ]
    )
    row = lines[3].split()
    assert (row[:3], row[4:]) == (
        ["192.0.2.1:18001", "primary", "registered"],
        ["41", "1", "<unknown>", "0", "3", "<none>"],
    )
    assert "core-1" in kubeletx("fornaxcore", "status", "-o", "wide").stdout
    assert (
        json.loads(kubeletx("fornaxcore", "status", "-o", "json").stdout)["cores"][0]["sent"]["change"] == 48
    )


def test_an_agent_without_cores_says_so(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("fornaxcore", "status")
    assert (result.exit_code, "--fornaxcore-url" in result.stderr) == (1, True)
