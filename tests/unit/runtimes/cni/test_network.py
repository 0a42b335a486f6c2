"""`CniPodNetwork` with plugins that are small shell scripts: order, journal, and repeated deletion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Internal, PodUid, TimedOut, Unavailable
from kubeletx.runtimes.cni import CniPodNetwork
from kubeletx.runtimes.cni.config import parse_config, plugin_input
from kubeletx.runtimes.cni.journal import to_address
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import let_others_work, until

A = PodUid("uid-a")
RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "br0"}, {"name": "eth0", "mac": "aa:bb", "sandbox": "/ns"}],
    "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 1}],
}
PLUGIN = """#!/bin/sh
stdin=$(cat)
echo "$CNI_COMMAND $(basename $0) $CNI_CONTAINERID $CNI_IFNAME [$CNI_NETNS]" >> {log}
echo "$stdin" >> {log}.stdin
[ -e {fail}.$CNI_COMMAND.$(basename $0) ] && {{ echo '{{"code":7,"msg":"went wrong","details":"sorry"}}'; exit 1; }}
[ -e {fail}.hang ] && sleep 100
[ $CNI_COMMAND = ADD ] && echo '{result}'
exit 0
"""


class Lab:
    """Directories, two plugins `first` and `second`, and their log."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path
        self.log = tmp_path / "log"
        self.conf = tmp_path / "net.d"
        self.bin = tmp_path / "bin"
        self.clock = FakeClock()
        self.netns = tmp_path / "netns"
        self.netns.touch()
        for directory in (self.conf, self.bin):
            directory.mkdir()
        for name in ("first", "second"):
            path = self.bin / name
            text = PLUGIN.format(log=self.log, fail=tmp_path / "fail", result=json.dumps(RESULT))
            path.write_text(text)
            path.chmod(0o755)
        self.networks: list[CniPodNetwork] = []
        self.configure(
            plugins=[{"type": "first"}, {"type": "second", "capabilities": {"portMappings": True}}]
        )

    def configure(self, **changes: Any) -> None:
        config = {"name": "net", "cniVersion": "1.0.0", **changes}
        (self.conf / "10-net.conflist").write_text(json.dumps(config))

    def fail(self, command: str, plugin: str, wrong: bool = True) -> None:
        path = self.root / f"fail.{command}.{plugin}"
        path.touch() if wrong else path.unlink()

    def network(self, **more: Any) -> CniPodNetwork:
        made = CniPodNetwork(
            conf_dir=self.conf,
            bin_dirs=[self.root / "none", self.bin],
            state_dir=self.root / "state",
            owner="agent",
            clock=self.clock,
            **more,
        )
        self.networks.append(made)
        return made

    async def add(self, network: CniPodNetwork, uid: PodUid = A, netns: str = "") -> Any:
        return await network.add(uid, "pod", "default", netns or str(self.netns), [{"hostPort": 80}])

    def calls(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [" ".join(line.split()[:2]) for line in lines]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    for network in made.networks:
        network.close()


async def test_plugins_run_in_order_and_back_in_reverse(lab: Lab) -> None:
    network = lab.network()
    address = await lab.add(network)
    assert address.ips == ("10.0.0.2/24",)
    assert (address.gateways, address.mac, address.netns) == (("10.0.0.1",), "aa:bb", str(lab.netns))
    assert lab.calls() == ["ADD first", "ADD second"]
    assert await network.check(A)
    assert lab.calls() == ["CHECK first", "CHECK second"]
    await network.delete(A)
    assert lab.calls() == ["DEL second", "DEL first"]
    await network.delete(A)
    assert lab.calls() == []
    assert not await network.check(A)


async def test_plugins_get_the_result_before_them_and_the_ports_they_can_do(lab: Lab) -> None:
    await lab.add(lab.network())
    first, second = (json.loads(line) for line in (lab.root / "log.stdin").read_text().splitlines())
    assert first == {"type": "first", "name": "net", "cniVersion": "1.0.0"}
    assert second["prevResult"] == RESULT
    assert second["runtimeConfig"] == {"portMappings": [{"hostPort": 80}]}
    assert "capabilities" not in second


async def test_the_same_call_again_returns_the_first_result_even_after_a_restart(lab: Lab) -> None:
    first = await lab.add(lab.network())
    lab.calls()
    assert await lab.add(lab.network()) == first
    assert lab.calls() == []


async def test_a_new_namespace_is_attached_again_after_the_old_one_is_given_back(lab: Lab) -> None:
    network = lab.network()
    await lab.add(network)
    lab.calls()
    other = lab.root / "other"
    other.touch()
    assert (await lab.add(network, netns=str(other))).netns == str(other)
    assert lab.calls() == ["DEL second", "DEL first", "ADD first", "ADD second"]


async def test_a_failed_add_gives_back_what_it_took(lab: Lab) -> None:
    network = lab.network()
    lab.fail("ADD", "second")
    with pytest.raises(Unavailable, match="CNI plugin 'second': ADD: went wrong; sorry"):
        await lab.add(network)
    assert lab.calls() == ["ADD first", "ADD second", "DEL second", "DEL first"]
    assert network.attachments == {}


async def test_a_deletion_that_fails_is_repeated_until_it_succeeds(lab: Lab) -> None:
    network = lab.network()
    await lab.add(network)
    lab.fail("DEL", "first")
    with pytest.raises(Unavailable):
        await network.delete(A)
    assert not await network.check(A)
    again = lab.network()
    task = asyncio.create_task(again.run())
    async with asyncio.timeout(60):
        while not any(call.startswith("DEL first") for call in lab.calls()):
            await let_others_work()
            await lab.clock.run_for(1)
        lab.fail("DEL", "first", wrong=False)
        while again.attachments:
            await let_others_work()
            await lab.clock.run_for(10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert list((lab.root / "state").iterdir()) == []


async def test_a_repeated_deletion_leaves_a_new_attachment_of_the_pod_alone(lab: Lab) -> None:
    network = lab.network()
    await lab.add(network)
    lab.fail("DEL", "first")
    with pytest.raises(Unavailable):
        await network.delete(A)
    lab.fail("DEL", "first", False)
    lab.calls()
    adding = asyncio.create_task(lab.add(network))
    await asyncio.sleep(0)  # it has the pod's turn now; the repeated deletion comes behind it
    repeating = asyncio.create_task(network.run())
    await adding
    assert await network.check(A), "its turn comes behind the repeated deletion's"
    repeating.cancel()
    await asyncio.gather(repeating, return_exceptions=True)
    assert lab.calls()[:4] == ["DEL second", "DEL first", "ADD first", "ADD second"]
    assert not network.attachments[A].deleting


async def test_an_add_that_a_crash_cut_off_is_given_back(lab: Lab) -> None:
    network = lab.network()
    (lab.root / "fail.hang").touch()
    task = asyncio.create_task(lab.add(network))
    async with asyncio.timeout(60):
        await until(lab.log.exists)
    saved = {path: path.read_bytes() for path in (lab.root / "state").glob("*.json")}
    (lab.root / "fail.hang").unlink()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for path, data in saved.items():
        path.write_bytes(data)
    lab.calls()
    again = lab.network()
    assert A in again.attachments
    running = asyncio.create_task(again.run())
    async with asyncio.timeout(60):
        await until(lambda: not again.attachments)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert lab.calls() == ["DEL second", "DEL first"]


async def test_a_record_that_cannot_be_read_is_kept_and_logged(lab: Lab) -> None:
    await lab.add(lab.network())
    (path,) = lab.root.rglob(f"{A}.json")
    newer = path.read_bytes().replace(b"{", b'{"version":2,', 1)
    path.write_bytes(newer)
    with capture_logs() as lines:
        assert lab.network().attachments == {}
    (line,) = lines
    assert (line["log_level"], path.read_bytes()) == ("warning", newer)
    assert "has version 2" in line["err"]


async def test_a_deletion_works_without_the_namespace(lab: Lab) -> None:
    network = lab.network()
    await lab.add(network)
    lab.netns.unlink()
    lab.log.unlink()
    await network.delete(A)
    assert lab.log.read_text().splitlines()[0].endswith("[]")


async def test_a_hanging_plugin_is_killed_at_its_deadline(lab: Lab) -> None:
    (lab.root / "fail.hang").touch()
    with pytest.raises(TimedOut, match=r"did not end within 0\.1 s"):
        await lab.add(lab.network(plugin_seconds=0.1))


async def test_pods_at_the_same_time_do_not_mix(lab: Lab) -> None:
    network = lab.network()
    await asyncio.gather(*(lab.add(network, PodUid(f"p{i}")) for i in range(10)))
    assert len(network.attachments) == 10
    await asyncio.gather(*(lab.add(network, PodUid("p1")) for _ in range(5)))
    assert len([c for c in lab.calls() if c == "ADD first"]) == 10


async def test_what_is_missing_is_named(lab: Lab) -> None:
    with pytest.raises(Internal, match="cannot be a CNI container id"):
        await lab.add(lab.network(), PodUid("../x"))
    lab.configure(plugins=[{"type": "absent"}])
    with pytest.raises(Unavailable, match=r"CNI plugin 'absent' is not in .*set --cni-bin-dir"):
        await lab.add(lab.network())
    lab.configure(plugins=[])
    with pytest.raises(
        Unavailable, match=r"no usable CNI configuration: 10-net.conflist: it lists no plugins"
    ):
        await lab.add(lab.network())
    (lab.conf / "10-net.conflist").unlink()
    with pytest.raises(Unavailable, match="no CNI configuration in"):
        await lab.add(lab.network())


def test_a_single_plugin_configuration_and_an_old_result() -> None:
    config = parse_config(b'{"name": "n", "type": "bridge", "mtu": 1400}')
    assert config.cni_version == "0.1.0"
    assert not config.supports("0.4.0")
    data = json.loads(
        plugin_input(config, config.plugins[0], capabilities={"portMappings": [1]}, previous=None)
    )
    assert data == {"name": "n", "type": "bridge", "mtu": 1400, "cniVersion": "0.1.0"}
    address = to_address({"ip4": {"ip": "10.1.0.2/16", "gateway": "10.1.0.1"}}, netns="/n", interface="eth0")
    assert (address.ips, address.gateways) == (("10.1.0.2/16",), ("10.1.0.1",))
