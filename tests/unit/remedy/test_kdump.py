"""Kernel dumps: messages over UDP, the release of pods, and power management that waits."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from kubeletx.kube.types.node import NodeAddress
from kubeletx.remedy.model import KernelDump, NodeView, RemedySettings
from kubeletx.remedy.safety.kdump import KernelDumps
from kubeletx.testing.clock import FakeClock
from tests.unit.remedy.trial import FENCE_CONFIG, START, Trial, new_node

MESSAGE = struct.pack("<II", 0x1B302A40, 1)
KDUMP = {**FENCE_CONFIG, "config.properties": FENCE_CONFIG["config.properties"] + "kdump=true\n"}
SETTINGS = RemedySettings(power_wait=10, kdump_limit=120)


class Listener:
    """A listener on loopback. `nodes`: of the cluster, by name."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.nodes: dict[str, NodeView] = {}
        self.begun = asyncio.Event()
        self.dumps = KernelDumps(lambda: self.nodes, self.clock, self.begun.set)
        with socket.socket(type=socket.SOCK_DGRAM) as reserved:
            reserved.bind(("127.0.0.1", 0))
            self.port: int = reserved.getsockname()[1]

    def add(self, name: str, address: str) -> None:
        node = new_node(name, START)
        addresses = (NodeAddress(type="InternalIP", address=address),)
        self.nodes[name] = replace(node, status=replace(node.status, addresses=addresses))

    def send(self, message: bytes, sender: str) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as crashed:
            crashed.bind((sender, 0))
            crashed.sendto(message, ("127.0.0.1", self.port))

    async def hears(self, sender: str, node: str) -> None:
        """Send a message; return when it was heard, and with it all before."""
        self.begun.clear()
        self.send(MESSAGE, sender)
        async with asyncio.timeout(30):
            await self.begun.wait()
        assert self.dumps.of(node).is_running


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    task = asyncio.create_task(made.dumps.listen(made.port), name="listen")
    while made.dumps.of("n1").seconds == float("inf"):
        await asyncio.sleep(0)
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_dump_lasts_as_long_as_its_node_repeats_the_message(listener: Listener) -> None:
    listener.add("n1", "127.0.0.11")
    await listener.hears("127.0.0.11", "n1")
    listener.clock.advance(25)
    assert listener.dumps.of("n1") == KernelDump(is_running=True, seconds=25)
    listener.clock.advance(5)
    assert listener.dumps.of("n1") == KernelDump(seconds=30)


@pytest.mark.parametrize(
    ("message", "sender"),
    [
        (MESSAGE, "127.0.0.99"),
        (MESSAGE, "127.0.0.12"),
        (MESSAGE[:7], "127.0.0.11"),
        (struct.pack("<II", 0x1B302A40, 2), "127.0.0.11"),
        (struct.pack("<II", 0x1B302A41, 1), "127.0.0.11"),
        (b"", "127.0.0.11"),
    ],
    ids=["unknown sender", "two nodes", "short", "version", "magic", "empty"],
)
async def test_other_datagrams_are_ignored(listener: Listener, message: bytes, sender: str) -> None:
    for name, address in {
        "n1": "127.0.0.11",
        "n2": "127.0.0.12",
        "n3": "127.0.0.12",
        "n4": "127.0.0.14",
    }.items():
        listener.add(name, address)
    listener.send(message, sender)
    await listener.hears("127.0.0.14", "n4")
    assert not any(listener.dumps.of(name).is_running for name in ("n1", "n2", "n3"))


async def test_a_port_that_is_taken_stops_nothing(listener: Listener) -> None:
    second = KernelDumps(lambda: {}, listener.clock, listener.begun.set)
    task = asyncio.create_task(second.listen(listener.port), name="listen")
    await asyncio.sleep(0)
    assert second.of("n1") == KernelDump()
    assert not task.done()
    task.cancel()


def _trial() -> Trial:
    trial = Trial(maps={"fence-config-n1": KDUMP}, settings=SETTINGS)
    trial.set("n1", "Unknown")
    return trial


def test_a_dump_releases_all_pods_and_delays_power_until_it_ends() -> None:
    trial = _trial()
    trial.run(8)
    assert trial.released == ["n1"]  # pods on the fenced storage
    trial.dumps = {"n1": KernelDump(is_running=True, seconds=3)}
    trial.run(60)
    assert (trial.state(), trial.released) == ("Power-Management/New", ["n1", "n1"])
    (plan,) = trial.plans().values()
    assert "the node writes a kernel dump: power management in 117 s at the latest" in str(plan.decision)
    trial.dumps = {"n1": KernelDump(seconds=90)}
    trial.run(2)
    assert trial.calls == ["n1/fc-off", "n1/pdu-off", "n1/pdu-on"]
    assert trial.released == ["n1", "n1"]


def test_a_dump_delays_power_for_no_longer_than_its_limit() -> None:
    trial = _trial()
    trial.dumps = {"n1": KernelDump(is_running=True, seconds=120)}
    trial.run(20)
    assert "n1/pdu-off" in trial.calls


def test_a_controller_listens_for_a_while_before_its_first_power_action() -> None:
    trial = _trial()
    trial.dumps = {"n1": KernelDump(seconds=29)}
    trial.run(60)
    assert trial.state() == "Power-Management/New"
    trial.dumps = {"n1": KernelDump(seconds=30)}
    trial.run(1)
    assert "n1/pdu-off" in trial.calls


def test_without_kdump_in_the_configuration_a_dump_changes_nothing() -> None:
    trial = Trial(settings=SETTINGS)
    trial.set("n1", "Unknown")
    trial.dumps = {"n1": KernelDump(is_running=True, seconds=3)}
    trial.run(20)
    assert "n1/pdu-off" in trial.calls
