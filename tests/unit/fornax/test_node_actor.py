"""Registration, configuration, reports and commands of a node with one core."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx_testing.fornaxcore import CoreSettings, FornaxCore
from kubeletx_testing.waiting import until
from tests.unit.fornax.core_model import NODE, QUICK, rig

RUNNING, STANDBY = pb.PodState.Running, pb.PodState.Standby


async def test_the_order_of_a_registration_is_that_of_a_published_core(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        assert core.kinds()[:3] == ["NODE_STATE", "NODE_REGISTER", "NODE_READY"]
        state, register, ready = core.log[:3]
        assert state.nodeState.node.status.phase == register.nodeRegistry.node.status.phase == "Pending"
        assert register.nodeRegistry.nodeRevision == state.nodeState.nodeRevision == 0
        assert ready.nodeReady.nodeRevision == 1
        assert ready.nodeReady.node.status.phase == "Running"
        assert made.content.configured == ["fornax.local"]
        node = ready.nodeReady.node
        assert f"{node.metadata.namespace}/{node.metadata.name}" == NODE
        assert node.status.conditions[0].status == "True"
        assert (await made.records.find_node()) is not None


async def test_changes_have_revisions_that_grow_by_one_and_keep_their_order(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        for number in range(35):  # more than three blocks of numbers
            made.content.set_pod(f"p{number}", RUNNING)
        made.content.set_session("s", "Available")
        await made.until_equal(core)
        changes = [m for m in core.log if m.messageType in (pb.POD_STATE, pb.SESSION_STATE)]
        assert [m.podState.nodeRevision or m.sessionState.nodeRevision for m in changes] == [*range(2, 38)]
        assert [m.podState.pod.metadata.name for m in changes[:-1]] == [f"p{n}" for n in range(35)]
        assert core.asked_full == 1
        assert core.sessions["ns/s"].session.status.sessionStatus == "Available"


async def test_a_burst_of_changes_of_many_pods_needs_no_full_state(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        for number in range(1500):
            made.content.set_pod(f"p{number}", RUNNING)
        await made.until_equal(core)
        assert core.kinds().count("POD_STATE") == 1500
        assert core.kinds().count("NODE_STATE") == core.asked_full == 1


async def test_a_full_state_has_the_lists_of_the_document(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core, sessions={"ns/s": "InUse"})
        await made.until_ready(core)
        made.content.pods = {"ns/p": RUNNING, "ns/q": STANDBY}
        core.send(pb.NODE_FULL_SYNC, nodeFullSync=pb.NodeFullSync())
        await until(lambda: core.kinds().count("NODE_STATE") > 1)
        state = core.last(pb.NODE_STATE).nodeState
        assert (list(state.runningPods), list(state.standbyPods)) == (["ns/p"], ["ns/q"])
        assert [one.session.metadata.name for one in state.sessionStates] == ["s"]
        assert len(state.podStates) == 2


async def test_states_are_repeated_at_an_interval_with_the_same_revision(tmp_path: Path) -> None:
    async with rig(tmp_path, replace(QUICK, state_seconds=0.02)) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        ready = core.last(pb.NODE_READY).nodeReady.nodeRevision

        def repeated() -> int:
            return sum(message.nodeState.nodeRevision == ready for message in core.log)

        await until(lambda: repeated() > 3)
        assert made.actor.revisions.current == ready


async def test_a_registration_is_repeated_until_the_core_configures_the_node(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        core.configuration = None
        await made.start_node(core)
        await until(lambda: core.kinds().count("NODE_REGISTER") >= 3)
        assert "NODE_READY" not in core.kinds()
        core.configuration = pb.NodeConfiguration()
        await made.until_ready(core)


async def test_a_configuration_that_cannot_be_applied_is_asked_for_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core, configure_fails=2)
        await made.until_ready(core)
        assert core.kinds().count("NODE_REGISTER") >= 3


async def test_commands_are_handled_while_a_configuration_is_applied(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.may_configure.clear()
        core.configuration = pb.NodeConfiguration(clusterDomain="other")  # also of a registration under way
        core.send(pb.NODE_CONFIGURATION, nodeConfiguration=core.configuration)
        core.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier="ns/p"))
        await until(lambda: made.content.commands)
        assert made.content.configured == ["fornax.local"]
        made.content.may_configure.set()
        await until(lambda: made.content.configured == ["fornax.local", "other"])
        await until(lambda: core.kinds().count("NODE_READY") >= 2)  # each configuration is answered


async def test_a_command_about_an_unknown_pod_is_answered_with_a_full_state(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        before = core.kinds().count("NODE_STATE")
        made.content.answers[pb.POD_TERMINATE] = True
        core.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier="ns/gone"))
        await until(lambda: core.kinds().count("NODE_STATE") > before)


async def test_a_command_with_an_ownership_counts_for_the_old_and_for_the_new_owner(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        first, second = await made.core("one"), await made.core("two")
        await made.start_node(first)
        await made.until_ready(first)
        names = [pb.FornaxCore(ip=core.address, identifier=core.identifier) for core in (first, second)]
        to_second = pb.FornaxCoreConfiguration(primary=names[1], standbys=names[:1])
        to_first = pb.FornaxCoreConfiguration(primary=names[0], standbys=names[1:])
        terminate = pb.PodTerminate(podIdentifier="ns/p")
        activate = pb.PodActive(podIdentifier="ns/p")
        first.send(pb.POD_TERMINATE, podTerminate=terminate, ownership=to_second)
        await until(lambda: second.is_connected)
        first.send(pb.POD_ACTIVE, podActive=activate, ownership=to_first)
        await until(lambda: len(made.content.commands) == 2)
        assert made.content.commands == [("POD_TERMINATE", first.address), ("POD_ACTIVE", first.address)]


async def test_a_change_of_the_node_is_a_full_state_with_the_next_revision(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.allocatable = "3"
        await until(lambda: core.revision == 2)
        assert core.node.status.allocatable["cpu"].string == "3"
        assert made.actor.revisions.current == 2


async def test_a_node_that_is_stopped_cleanly_continues_with_the_next_number(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core)
        await made.until_ready(core)
        made.content.set_pod("p", RUNNING)
        await made.until_equal(core)
        await made.stop_node()
        await made.start_node(core, pods={"ns/p": RUNNING})
        await until(lambda: core.kinds().count("NODE_READY") == 2)
        assert made.content.forgotten == 0
        assert made.content.configured == ["fornax.local"]  # the stored one; the core's is equal
        assert core.last(pb.NODE_READY).nodeReady.nodeRevision == 3


async def test_a_silent_connection_is_closed_before_the_next_one_is_opened(tmp_path: Path) -> None:
    settings = replace(QUICK, link=replace(QUICK.link, put_seconds=1.0, probe_seconds=0.2))
    async with FornaxCore(CoreSettings()) as core, rig(tmp_path) as made:
        gc.disable()  # so that no collection closes the connection by chance
        try:
            await made.start_node(core, settings=settings)
            await core.wait_for(lambda: core.history.of("NODE_READY"))
            for streams in (2, 3):
                core.line.silence()
                await core.wait_for(partial(_has_streams, core, streams))
        finally:
            gc.enable()
        assert (
            core.history.counts["second stream refused"] <= 2
        )  # the server has noticed the end a little later


def _has_streams(core: FornaxCore, count: int) -> bool:
    return len(core.history.of("NODE_FULL_SYNC")) >= count
