"""Maintenance mode: reasons that come and go, and stronger words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.health.trial import Trial


@pytest.mark.parametrize(
    ("topic", "bad", "good", "reason"),
    [
        (
            ("volumemgr", "VolumeMgrStatus", "volumemgr"),
            {"Initialized": True, "RemainingSpace": 0},
            {"Initialized": True, "RemainingSpace": 1 << 30},
            "NoDiskSpace",
        ),
        (("tpmmgr", "TpmSanityStatus", "tpm"), {"Status": 2}, {"Status": 1}, "TpmEncFailure"),
        (
            ("zedagent", "ZedAgentStatus", "zedagent"),
            {"ConfigGetStatus": 1, "EdgeNodeCertsRefused": True},
            {"ConfigGetStatus": 1},
            "EdgeNodeCertsRefused",
        ),
    ],
)
def test_reasons_of_other_agents_come_and_go(
    tmp_path: Path,
    topic: tuple[str, str, str],
    bad: Mapping[str, Any],
    good: Mapping[str, Any],
    reason: str,
) -> None:
    node = Trial(tmp_path)
    node.is_reached = False
    assert node.order("maintenance", values={"mode": "on"}).outcome == "accepted"
    node.publish(*topic, **bad)
    node.tick()
    assert node.status.local_maintenance_mode_reasons == tuple(sorted(("UserRequested", reason)))
    node.publish(*topic, **good)
    node.tick()
    assert node.status.local_maintenance_mode_reasons == ("UserRequested",)
    node.order("maintenance", values={"mode": "off"})
    node.tick()
    assert not node.status.local_maintenance_mode


def test_the_configuration_decides_before_all_reasons(tmp_path: Path) -> None:
    node = Trial(tmp_path)
    node.order("maintenance", values={"mode": "on"})
    for word, is_on in (("disabled", False), ("enabled", True), ("none", True)):
        assert node.order("config", values={"maintenance.mode": word}).outcome == "accepted"
        assert node.status.local_maintenance_mode is is_on


@pytest.mark.parametrize("is_testing", [False, True])
def test_a_vault_that_stays_closed(tmp_path: Path, is_testing: bool) -> None:
    """In normal operation the node goes into maintenance mode; an image under test falls back."""
    node = Trial(tmp_path, {"timer.vault.ready.cutoff": 60})
    if is_testing:
        node.set_slots("active", "inprogress", "IMGB")
    node.publish("vaultmgr", "VaultStatus", "Application Data Store", Status=4)
    node.tick(60)
    assert (node.reboots, node.status.local_maintenance_mode) == ([], False)
    node.tick(110)
    if is_testing:
        assert [line["bootReason"] for line in node.reboots] == ["VaultFailure"]
    else:
        assert node.status.local_maintenance_mode_reasons == ("VaultLockedUp",)
        node.publish("vaultmgr", "VaultStatus", "Application Data Store", Status=3)
        node.tick()
        assert not node.status.local_maintenance_mode
