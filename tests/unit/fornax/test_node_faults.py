"""A node under a core that changes its mind, and bugs in reports."""

from __future__ import annotations

from collections.abc import Sized
from functools import partial
from pathlib import Path

from kubeletx.fornax.status import node_status
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx_testing.waiting import until
from tests.unit.fornax.core_model import rig

RUNNING = pb.PodState.Running


def _has_length(things: Sized, length: int) -> bool:
    return len(things) == length


async def test_the_last_configuration_counts_also_if_it_is_an_earlier_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.may_configure.clear()
        for number, domain in enumerate(("other", "fornax.local"), 1):
            core.send(pb.NODE_CONFIGURATION, nodeConfiguration=pb.NodeConfiguration(clusterDomain=domain))
            core.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier="ns/p"))
            await until(partial(_has_length, made.content.commands, number))
        made.content.may_configure.set()
        await until(lambda: made.content.configured == ["fornax.local", "other", "fornax.local"])


async def test_a_report_that_fails_with_a_bug_ends_nothing_else(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.set_pod("bad", "no state of the wire")  # type: ignore[arg-type] # the bug
        await until(lambda: "ns/bad" in made.content.revisions)
        made.content.pods.pop("ns/bad")
        made.content.set_pod("good", RUNNING)
        await made.until_equal(core)
        assert core.streams == 1


async def test_a_full_state_that_fails_with_a_bug_is_tried_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.pods = {"ns/bad": "no state of the wire"}  # type: ignore[dict-item] # the bug
        core.send(pb.NODE_FULL_SYNC, nodeFullSync=pb.NodeFullSync())
        await until(lambda: "internal error" in node_status(made.actor).cores[0].problem)
        made.content.pods = {"ns/good": RUNNING}
        await made.until_equal(core)
        await until(lambda: node_status(made.actor).cores[0].problem == "")
