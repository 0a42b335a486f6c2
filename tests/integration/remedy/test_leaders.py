"""Two controllers at a time, a lost Lease, and an API server that goes away while an agent switches a machine off."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.remedy.main import LEASE, NAMESPACE
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import block_until
from tests.integration.support.remedy_lab import RemedyLab

WORD = "s3cr3t-of-the-pdu"


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as made:
        yield made


@pytest.fixture
def lab(double: ApiServerDouble, tmp_path: Path) -> Iterator[RemedyLab]:
    made = RemedyLab(double, tmp_path)
    made.slow_agent()
    secret = {"metadata": {"name": "pdu"}, "data": {"password": b64encode(WORD.encode()).decode()}}
    double.admin.create("secrets", secret, NAMESPACE)
    for name in ("node-1", "node-2", "node-3"):
        made.add_node(name, more="secret=pdu\n")
    made.add_pod("db-0", "node-1")
    yield made
    made.end()


def test_two_controllers_that_both_lead_switch_a_machine_off_once_and_show_no_secret(
    lab: RemedyLab, double: ApiServerDouble
) -> None:
    for _ in range(2):
        lab.start("--leader-elect=false")
    block_until(lambda: double.watch_count("nodefences") == 2)
    lab.ready("node-1", "Unknown")
    lab.await_state("node-1", "Power-Management/Done")
    assert (lab.actions, lab.pods("node-1")) == (["off", "on"], [])
    block_until(lambda: "PowerManagementDone" in lab.seen())
    assert "Powered on with [secret]" in lab.seen()
    assert WORD not in lab.seen()


def test_no_power_action_is_repeated_when_the_api_server_goes_away_or_the_lease_is_lost(
    lab: RemedyLab, double: ApiServerDouble
) -> None:
    for _ in range(2):
        lab.start()
    block_until(lambda: double.watch_count("nodefences") == 2)
    lab.ready("node-1", "Unknown")
    block_until(lambda: lab.actions)
    double.stop()
    block_until(lambda: lab.machine("node-1").read_text() == "off")
    double.start()
    lab.await_state("node-1", "Power-Management/Done")
    assert (lab.actions, lab.pods("node-1")) == (["off", "on"], [])
    double.admin.delete("leases", LEASE, NAMESPACE)
    lab.ready("node-1", "True", boot_id="boot 2")
    lab.await_state("node-1", "Recovery/Final")
    assert lab.actions == ["off", "on"]
