"""Faults of the first node agent's link to its cores, by their number in the reference: each must not occur here."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace
from structlog.testing import capture_logs

from kubeletx.api import Unavailable
from kubeletx.api.backoff import Backoff
from kubeletx.fornax import link as link_module
from kubeletx.fornax import wire
from kubeletx.fornax.cores import Role
from kubeletx.fornax.link import LinkSettings, TlsFiles
from kubeletx.fornax.node_records import NodeRecords
from kubeletx.fornax.status import metrics, node_status
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.fornax.core_model import NODE, QUICK, REVISION, Rig, TinyCore, rig, with_link

RUNNING, TERMINATED = pb.PodState.Running, pb.PodState.Terminated
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
REFUSED = (grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNKNOWN)


def owners(primary: TinyCore, *standbys: TinyCore) -> pb.FornaxCoreConfiguration:
    return pb.FornaxCoreConfiguration(
        primary=pb.FornaxCore(ip=primary.address, identifier=primary.identifier),
        standbys=[pb.FornaxCore(ip=one.address, identifier=one.identifier) for one in standbys],
    )


async def ready(made: Rig, *cores: TinyCore) -> None:
    await made.start_node(*cores)
    await made.until_ready(*cores)


# --- B1: a change of owners dropped every connected core ---


async def test_b1_cores_that_stay_keep_their_connection_when_owners_change(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        seed, primary, standby = [await made.core(name) for name in ("seed", "primary", "standby")]
        await ready(made, seed, standby)
        seed.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=owners(primary, standby))
        await made.until_ready(primary)
        await until(lambda: not seed.is_connected)
        made.content.set_pod("p", RUNNING)
        await made.until_equal(primary, standby)
        assert (standby.streams, primary.streams) == (1, 1)
        await until(lambda: "NODE_REGISTER" in primary.kinds())
        # A second state comes first if the owners are stored while the first one is under way.
        assert set(primary.kinds()[: primary.kinds().index("NODE_REGISTER")]) == {"NODE_STATE"}
        roles = {core.address: core.role for core in node_status(made.actor).cores}
        assert roles == {primary.address: "primary", standby.address: "standby"}


async def test_b1_ownership_inside_another_command_comes_before_the_command(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        old, new = await made.core("old"), await made.core("new")
        await ready(made, old, new)
        old.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=owners(old, new))
        await until(lambda: made.actor.cores.owners)
        terminate = pb.PodTerminate(podIdentifier="ns/p")
        new.send(pb.POD_TERMINATE, podTerminate=terminate, ownership=owners(new, old))
        await until(lambda: made.content.commands == [("POD_TERMINATE", new.address)])
        old.send(pb.POD_TERMINATE, podTerminate=terminate)  # no longer the primary
        await until(lambda: made.status(old).refused == 1)
        assert len(made.content.commands) == 1
        assert (old.streams, new.streams) == (1, 1)


async def test_b1_owners_are_kept_over_a_restart_until_the_seeds_change(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        seed, primary = await made.core("seed"), await made.core("primary")
        await ready(made, seed)
        seed.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=owners(primary))
        await made.until_ready(primary)
        await made.stop_node()
        primary.log.clear()
        await made.start_node(seed)
        await made.until_ready(primary)
        assert seed.streams == 1
        await made.stop_node()
        other = await made.core("other")
        await ready(made, other)
        assert made.actor.cores.owners == ()


async def test_b1_seeds_are_connected_again_while_no_owner_answers(tmp_path: Path) -> None:
    async with rig(tmp_path, replace(QUICK, fallback_seconds=0.05)) as made:
        seed, primary, third = [await made.core(name) for name in ("seed", "primary", "third")]
        await ready(made, seed)
        seed.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=owners(primary))
        await made.until_ready(primary)
        await until(lambda: not seed.is_connected)
        await primary.stop()
        await until(lambda: seed.is_connected)
        seed.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier="ns/p"))
        await until(lambda: made.status(seed).refused == 1)
        seed.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=owners(third))
        await made.until_ready(third)
        assert made.actor.cores.owners[0].role is Role.PRIMARY


async def test_b1_an_unusable_ownership_changes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        bad = pb.FornaxCoreConfiguration(primary=pb.FornaxCore(ip="nowhere:port"))
        core.send(pb.FORNAX_CORE_CONFIGURATION, fornaxCoreConfiguration=bad)
        await until(lambda: made.status(core).refused == 1)
        assert made.actor.cores.owners == ()
        assert core.is_connected


# --- B2: a full sync was answered before the stored pods were loaded ---


async def test_b2_no_state_is_sent_before_stored_pods_are_loaded(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        made.content.set_pod("p", RUNNING)
        await made.until_equal(core)
        await made.stop_node()
        core.log.clear()
        loaded = asyncio.Event()
        await made.start_node(core, ready=loaded, pods={"ns/p": RUNNING})
        for _ in range(50):
            await let_others_work()
        assert core.log == []
        assert list(core.pods) == ["ns/p"]
        loaded.set()
        await made.until_ready(core)
        assert all(message.nodeState.podStates for message in core.log if message.HasField("nodeState"))


# --- B3: a failed put was dropped ---


@pytest.mark.parametrize("code", [*BROKEN, *REFUSED])
@pytest.mark.parametrize("fault", ["failing", "losing"])
async def test_b3_the_last_change_arrives_though_its_call_failed(
    tmp_path: Path, code: grpc.StatusCode, fault: str
) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        getattr(core, fault).extend([code] * 3)
        made.content.set_pod("p", TERMINATED)
        await made.until_equal(core)
        await until(lambda: node_status(made.actor).cores[0].acknowledged == core.revision)
        assert made.status(core).failures >= 3


async def test_b3_a_core_that_restarts_gets_the_true_state_without_a_change(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        await core.stop()
        core.forget()
        made.content.set_pod("p", RUNNING)
        made.content.set_pod("q", TERMINATED)
        await core.start()
        await made.until_equal(core)
        assert core.node.status.phase == "Running"  # else no pod would be scheduled here
        assert core.kinds().count("NODE_REGISTER") == 1


async def test_b3_changes_while_a_core_is_away_do_not_queue_without_limit(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core, slow = await made.core("core"), await made.core("slow")
        await ready(made, core, slow)
        slow.answering.clear()
        for number in range(1100):
            made.content.set_pod(f"p{number % 20}", number % 2)
            await asyncio.sleep(0)
            if number % 100 == 99:
                await made.until_equal(core)  # the slow core does not delay this one
        queue = {one.address: one.queue for one in node_status(made.actor).cores}
        assert queue[slow.address] <= 500
        slow.answering.set()
        await made.until_equal(core, slow)
        assert (core.streams, slow.streams) == (1, 1)
        assert core.asked_full == slow.asked_full == 1


# --- B4: limits of messages ---


async def test_b4_messages_up_to_64_mib_pass_in_both_directions(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        create = pb.PodCreate(podIdentifier="ns/p", pod={})
        create.pod.metadata.annotations["large"] = "x" * (wire.MAX_MESSAGE_BYTES - 1000)
        core.send(pb.POD_CREATE, podCreate=create)
        await until(lambda: made.content.commands)
        made.content.padding = wire.MAX_MESSAGE_BYTES - 1000
        made.content.set_pod("p", RUNNING)
        await made.until_equal(core)
        assert core.streams == 1


async def test_b4_a_larger_message_of_the_core_is_named_and_the_link_recovers(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        create = pb.PodCreate(podIdentifier="ns/p", pod={})
        create.pod.metadata.annotations["large"] = "x" * (wire.MAX_MESSAGE_BYTES + 1)
        with capture_logs() as logs:
            core.send(pb.POD_CREATE, podCreate=create)
            await until(lambda: core.streams == 2)
        (reason,) = [entry["err"] for entry in logs if entry["event"] == "No connection to a FornaxCore"]
        assert "RESOURCE_EXHAUSTED" in reason
        assert str(wire.MAX_MESSAGE_BYTES) in reason
        assert made.content.commands == []
        made.content.set_pod("q", RUNNING)
        await made.until_equal(core)


async def test_b4_a_state_of_more_than_64_mib_is_not_sent_and_named(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        made.content.padding = wire.MAX_MESSAGE_BYTES
        made.content.set_pod("p", RUNNING)
        await until(lambda: "NODE_STATE" in node_status(made.actor).cores[0].problem)
        assert str(wire.MAX_MESSAGE_BYTES) in node_status(made.actor).cores[0].problem
        assert core.is_connected
        made.content.padding = 0
        await made.until_equal(core)
        await until(lambda: node_status(made.actor).cores[0].problem == "")


# --- B5: refused streams ---


async def test_b5_refused_streams_are_tried_again_with_growing_delays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    class Recorded(Backoff):
        def next(self, now: float = 0.0, *, at_least: float = 0.0) -> float:
            delays.append(super().next(now, at_least=at_least))
            return delays[-1]

    monkeypatch.setattr(link_module, "Backoff", Recorded)
    async with rig(tmp_path) as made:
        core = await made.core()
        core.refuse_streams = True
        await made.start_node(core)
        await until(lambda: core.refused_streams >= 6)
        assert core.log == []
        assert delays[0] < delays[2] < delays[4]  # jitter is at most a half
        assert max(delays) <= 0.1 * 1.5
        assert "the node has a stream already" in node_status(made.actor).cores[0].problem
        core.refuse_streams = False
        await made.until_ready(core)
        assert node_status(made.actor).cores[0].problem == ""


# --- B6: messages for another node, and other bad input ---


async def test_b6_messages_for_another_node_are_not_carried_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        terminate = pb.PodTerminate(podIdentifier="ns/p")
        core.send(pb.POD_TERMINATE, node="fornax.centaurusinfra.io/other", podTerminate=terminate)
        core.send(pb.POD_TERMINATE)  # without a body
        core.send(pb.POD_STATE, podState=pb.PodState())  # a type that only nodes send
        core.send(4711)
        core.send(pb.POD_TERMINATE, podTerminate=terminate)
        await until(lambda: made.content.commands)
        assert made.content.commands == [("POD_TERMINATE", core.address)]
        assert made.status(core).refused == 4
        assert core.streams == 1


async def test_b6_a_command_that_fails_is_answered_and_does_not_end_the_link(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        made.content.answers[pb.POD_HIBERNATE] = RuntimeError("a bug")
        states = core.kinds().count("NODE_STATE")
        core.send(pb.POD_HIBERNATE, podHibernate=pb.PodHibernate(podIdentifier="ns/p"))
        await until(lambda: core.kinds().count("NODE_STATE") > states)
        assert core.streams == 1


# --- B12: Ready was forced ---


async def test_b12_the_node_is_ready_only_if_its_condition_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await made.start_node(core, node_is_ready=False, has_addresses=False)
        await until(lambda: made.content.configured)
        assert core.node.status.phase == "Pending"
        made.content.node_is_ready = True
        await made.until_ready(core)
        node = core.node
        assert (node.status.phase, node.status.conditions[0].status) == ("Running", "True")
        assert node.status.addresses[0].address == "192.0.2.7"  # a published core reads it without a check
        made.content.node_is_ready = False
        await until(lambda: core.node.status.phase == "Pending")
        assert core.node.status.conditions[0].status == "False"
        assert core.revision == made.actor.revisions.current


# --- B19, B20, B21: state shared between tasks, late writes, revisions that fall ---


async def test_b19_changes_during_every_kind_of_message_arrive(tmp_path: Path) -> None:
    async with rig(tmp_path, replace(QUICK, state_seconds=0.005)) as made:
        cores = [await made.core(f"c{number}") for number in range(3)]
        await ready(made, *cores)
        for number in range(300):
            made.content.set_pod(f"p{number % 7}", RUNNING if number % 3 else TERMINATED)
            if number % 5 == 0:
                made.content.pods.pop(f"ns/p{(number + 1) % 7}", None)
                made.content.allocatable = str(number)
            await asyncio.sleep(0)
        for name in list(made.content.pods):
            made.content.set_pod(name.removeprefix("ns/"), RUNNING)
        await made.until_equal(*cores)


async def test_b20_a_pod_that_is_gone_takes_no_number(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        made.content.set_pod("p", RUNNING)
        made.content.pods.clear()
        made.content.set_pod("q", RUNNING)
        await made.until_equal(core)
        assert core.asked_full == 1
        assert made.actor.revisions.current == 2


async def test_b21_after_a_crash_a_full_state_with_a_larger_number_comes_first(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        for number in range(4):
            made.content.set_pod(f"p{number}", RUNNING)
        await made.until_equal(core)
        last = core.revision
        pods = dict(made.content.pods)
        await made.stop_node(clean=False)
        core.log.clear()
        await made.start_node(core, pods=pods)
        made.content.set_pod("p0", TERMINATED)
        await made.until_ready(core)
        await made.until_equal(core)
        first = core.log[0]
        assert first.messageType == pb.NODE_STATE
        assert last < first.nodeState.nodeRevision < core.revision
        assert made.content.forgotten == 0
        stored = await made.records.find_node()
        assert stored is not None
        assert stored.ceiling >= core.revision


async def test_b21_a_lost_database_makes_a_new_node_that_removes_its_pods(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        for number in range(5):
            made.content.set_pod(f"p{number}", RUNNING)
        await made.until_equal(core)
        await made.stop_node()
        for path in tmp_path.glob("kubeletx.db*"):
            path.unlink()
        await made.start_node(core, pods={"ns/p0": RUNNING})
        await until(lambda: core.kinds().count("NODE_READY") == 2)
        assert made.content.forgotten == 1
        assert core.pods == {}
        assert core.revision == 1
        made.content.set_pod("new", RUNNING)
        await made.until_equal(core)
        pod = core.pods["ns/new"].pod
        assert pod.metadata.annotations[REVISION] == "2"


async def test_b21_no_change_is_sent_while_its_number_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)

        async def full(_self: NodeRecords, _node: object) -> None:
            raise Unavailable("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(NodeRecords, "save_node", full)
            for number in range(30):  # more than a block
                made.content.set_pod(f"p{number}", RUNNING)
            await until(lambda: made.actor.revisions.current == 10)
            await until(lambda: core.revision == 10)
            assert len(core.pods) < 30
        await made.until_equal(core)
        assert core.asked_full == 1


# --- B24: the agent did not stop ---


@pytest.mark.parametrize("fault", ["none", "silent", "gone", "refusing"])
async def test_b24_the_link_stops_whatever_the_core_does(tmp_path: Path, fault: str) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        match fault:
            case "silent":
                core.answering.clear()
                made.content.set_pod("p", RUNNING)
            case "gone":
                await core.stop()
            case "refusing":
                core.refuse_streams = True
        before = made.actor.revisions.current
        await made.stop_node()
        assert made.actor.machine.state.value == "Stopped"
        assert made.actor.links == {}
        assert {task.get_name() for task in asyncio.all_tasks()} & {"node-actor", "fornax-link"} == set()
        assert made.actor.revisions.current - before <= 1


# --- the document: silence, TLS, figures ---


async def test_a_silent_core_is_found_by_a_probe_and_connected_again(tmp_path: Path) -> None:
    async with rig(tmp_path, with_link(probe_seconds=0.05, put_seconds=1.0)) as made:
        core = await made.core()
        await ready(made, core)
        await until(lambda: any(message.messageType == pb.UNSPECIFIED for message in core.log))
        core.answering.clear()  # TCP stays up, nothing is answered
        await until(lambda: "DEADLINE_EXCEEDED" in node_status(made.actor).cores[0].problem)
        core.answering.set()
        made.content.set_pod("p", RUNNING)
        await made.until_equal(core)
        assert core.streams > 1


def test_a_silent_core_is_found_within_twenty_seconds() -> None:
    settings = LinkSettings()
    assert settings.probe_seconds + settings.put_seconds + settings.greeting_seconds < 20


def certificate(name: str, directory: Path, *, days: float = 1.0) -> tuple[Path, Path]:
    """Make a self-signed certificate and its key for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = directory / f"{name}.crt", directory / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


async def test_mutual_tls_refuses_wrong_and_expired_certificates_with_a_reason(tmp_path: Path) -> None:
    core_files = certificate("core", tmp_path)
    node_files = certificate("node", tmp_path)
    old_files = certificate("old", tmp_path, days=-1)
    server = grpc.ssl_server_credentials(
        [(core_files[1].read_bytes(), core_files[0].read_bytes())],
        root_certificates=node_files[0].read_bytes() + old_files[0].read_bytes(),
        require_client_auth=True,
    )
    async with rig(tmp_path) as made:
        core = TinyCore()
        made.cores.append(core)
        await core.start(server)
        link = QUICK.link
        good = TlsFiles(authority=core_files[0], certificate=node_files[0], key=node_files[1])
        problems = list[str]()
        for bad in (
            replace(good, authority=node_files[0]),
            replace(good, certificate=old_files[0], key=old_files[1]),
            replace(good, certificate=None, key=None),
            replace(good, key=tmp_path / "missing"),
        ):
            settings = replace(QUICK, link=replace(link, tls=bad))
            await made.start_node(core, settings=settings)
            await until(lambda: made.actor.links)
            await until(lambda: node_status(made.actor).cores[0].problem != "not connected yet")
            problems.append(node_status(made.actor).cores[0].problem)
            assert core.log == []
            await made.stop_node()
        assert "CERTIFICATE_VERIFY_FAILED" in problems[0]
        assert str(tmp_path / "missing") in problems[3]
        await made.start_node(core, settings=replace(QUICK, link=replace(link, tls=good)))
        await made.until_ready(core)


async def test_figures_of_the_link_are_counted(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        core = await made.core()
        await ready(made, core)
        core.send(pb.POD_TERMINATE, node="x/y", podTerminate=pb.PodTerminate(podIdentifier="ns/p"))
        made.content.set_pod("p", RUNNING)
        await made.until_equal(core)
        await until(lambda: made.status(core).refused == 1)
        await until(lambda: node_status(made.actor).cores[0].acknowledged == 2)
        status = node_status(made.actor)
        assert (status.identifier, status.state, status.ready, status.revision) == (NODE, "Ready", True, 2)
        (row,) = status.cores
        assert row.connected
        assert row.registered
        assert (row.role, row.queue, row.failures) == ("seed", 0, 0)
        assert row.sent["NODE_STATE"] + row.sent["NODE_READY"] == 2
        values = {
            (metric.name, *labels): value
            for metric in metrics(made.actor, {}, {})
            for labels, value in metric.samples()
        }
        address = core.address
        assert values["kubeletx_fornaxcore_revision",] == 2
        assert values["kubeletx_fornaxcore_connected", address] == 1
        assert values["kubeletx_fornaxcore_acknowledged_revision", address] == 2
        assert values["kubeletx_fornaxcore_queue", address] == 0
        assert values["kubeletx_fornaxcore_sent_total", address, "change"] == 1
        assert values["kubeletx_fornaxcore_sent_total", address, "NODE_READY"] == 1
        assert values["kubeletx_fornaxcore_refused_total", address] == 1
