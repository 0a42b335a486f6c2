"""Fence agents: real ones of Debian, and shell scripts where a device would have to misbehave."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.actions.agent import AGENTS_DIRECTORY, FenceAgents
from kubeletx.remedy.model import (
    FenceFlow,
    FenceMethod,
    FenceOperation,
    FenceProof,
    FlowStep,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedyTask,
)

METADATA = """<?xml version="1.0"?>
<resource-agent name="fence_lab" shortdesc="lab">
<parameters>
  <parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
  <parameter name="ipaddr" required="1" deprecated="1"><content type="string"/></parameter>
  <parameter name="ip" required="1" obsoletes="ipaddr"><content type="string"/></parameter>
  <parameter name="passwd" required="0" deprecated="1"><content type="string"/></parameter>
  <parameter name="password" required="0" obsoletes="passwd"><content type="string"/></parameter>
  <parameter name="identity_file" required="0"><content type="string"/></parameter>
  <parameter name="ssl_insecure" required="0"><content type="boolean"/></parameter>
  <parameter name="verbose" required="0"><content type="boolean"/></parameter>
  <parameter name="power_wait" required="0"><content type="second" default="0"/></parameter>
  <parameter name="method" required="0"><content type="select" default="onoff">
    <option value="onoff"/><option value="cycle"/></content></parameter>
</parameters>
<actions>ACTIONS</actions>
</resource-agent>
"""
POWER = ("on", "off", "reboot", "status", "monitor")
SWITCH = """case "$action" in
  on|off) echo $action > state; echo "Success: Powered $action";;
  reboot) echo on > state; echo "Success: Rebooted";;
  status) echo "Status: $(cat state | tr a-z A-Z)"; [ "$(cat state)" = on ] || exit 2;;
esac
"""


class Lab:
    """A directory of agents. Each scripted agent records its input and its action, and has its state in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.state.write_text("on\n")

    def agent(
        self, script: str = SWITCH, *, name: str = "fence_lab", actions: tuple[str, ...] = POWER
    ) -> None:
        xml = METADATA.replace("ACTIONS", "".join(f'<action name="{action}"/>' for action in actions))
        (self.directory / f"{name}.xml").write_text(xml)
        path = self.directory / name
        path.write_text(
            f"""#!/bin/sh
cd {self.directory}
input=$(cat)
action=$(echo "$input" | sed -n 's/^action=//p')
[ "$action" = metadata ] && exec cat {name}.xml
echo "$action" >> actions
echo "$input" > input; env > environment; tr '\\0' ' ' < /proc/$PPID/cmdline > line; tr '\\0' ' ' < /proc/$$/cmdline >> line
{script}"""
        )
        path.chmod(0o755)

    @property
    def actions(self) -> list[str]:
        path = self.directory / "actions"
        return path.read_text().split() if path.exists() else []

    @property
    def input(self) -> list[str]:
        return (self.directory / "input").read_text().splitlines()

    async def run(
        self, *, secrets: Mapping[str, Mapping[str, bytes]] | None = None, **how: Any
    ) -> RemedyOutcome:
        async def read(name: str) -> Mapping[str, bytes]:
            return (secrets or {})[name]

        agents = FenceAgents(directory=self.directory, read_secret=read, pause_seconds=0)
        return await agents.run(make_task(**{"agent": "fence_lab", "ip": "192.0.2.1"} | how))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def make_task(
    *,
    agent: str,
    seconds: float = 60.0,
    proof: FenceProof = FenceProof.POWER,
    secret_names: tuple[str, ...] = (),
    is_repeat: bool = False,
    boot_id: str = "old",
    **parameters: Any,
) -> RemedyTask:
    node = NodeView(metadata=ObjectMeta(name="n1"))
    info = type(node.status.node_info)(boot_id=boot_id)
    node = NodeView(metadata=node.metadata, status=type(node.status)(node_info=info))
    return RemedyTask(
        node=node,
        fence=NodeFence(node="n1", flow=FenceFlow(boot_id="old")),
        step=FlowStep.POWER,
        method=FenceMethod(
            name="m",
            kind="agent",
            agent=agent,
            parameters={key: str(value) for key, value in parameters.items()},
            secrets=secret_names,
            seconds=seconds,
            proof=proof,
        ),
        operation=FenceOperation(id="1"),
        is_repeat=is_repeat,
    )


def ended(pid: int) -> bool:
    """Wait until the process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 30)[0])
    finally:
        os.close(process)


# --- fence_dummy of Debian ---


async def test_a_real_agent_switches_off_with_proof_and_on_again(tmp_path: Path) -> None:
    state = tmp_path / "status"
    state.write_text("on")
    agents = FenceAgents()

    async def run(action: str) -> RemedyOutcome:
        return await agents.run(make_task(agent="fence_dummy", action=action, status_file=state))

    off = await run("off")
    assert (off.result, off.proofs, state.read_text()) == (MethodResult.DONE, (FenceProof.POWER,), "off")
    on = await run("on")
    assert (on.result, on.proofs, state.read_text()) == (MethodResult.DONE, (), "on")
    reboot = await run("reboot")
    assert (reboot.result, reboot.proofs, state.read_text()) == (MethodResult.DONE, (FenceProof.POWER,), "on")


async def test_a_real_agent_that_cannot_switch_off_proves_nothing() -> None:
    waits: dict[str, Any] = {"power_timeout": 1, "stonith_status_sleep": 0}
    outcome = await FenceAgents(pause_seconds=0).run(
        make_task(agent="fence-dummy", action="off", type="fail", plug="1", **waits)
    )
    assert (outcome.result is MethodResult.DONE, outcome.proofs) == (False, ())


@pytest.mark.parametrize("agent", ["fence_ipmilan", "fence_scsi", "fence_kdump"])
async def test_metadata_of_real_agents_is_understood(agent: str) -> None:
    metadata = await FenceAgents(directory=AGENTS_DIRECTORY).metadata(agent)
    assert metadata.is_fabric == (agent != "fence_ipmilan")
    assert metadata.has_status == (agent != "fence_kdump")


async def test_a_message_of_a_kernel_dump_proves_that_the_node_runs_no_pod() -> None:
    """Source of the message: fence-agents, agents/kdump/message.h."""
    message = struct.pack("<II", 0x1B302A40, 1)
    with socket.socket(type=socket.SOCK_DGRAM) as sender, socket.socket(type=socket.SOCK_DGRAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        reserved.close()
        parameters: dict[str, Any] = {"nodename": "127.0.0.1", "ipport": port, "timeout": 30}
        dump = asyncio.create_task(
            FenceAgents().run(make_task(agent="fence_kdump", action="off", **parameters)), name="fence_kdump"
        )
        while not dump.done():  # the kernel repeats its message too
            sender.sendto(message, ("127.0.0.1", port))
            await asyncio.wait([dump], timeout=0.05)
    assert (dump.result().result, dump.result().proofs) == (MethodResult.DONE, (FenceProof.POWER,))


# --- proofs ---


async def test_off_counts_only_when_status_says_so(lab: Lab) -> None:
    lab.agent(SWITCH.replace("on|off) echo $action > state;", "on|off)"))
    outcome = await lab.run(action="off")
    assert (outcome.result, outcome.proofs) == (MethodResult.FAILED, ())
    assert "the device is on" in outcome.message


async def test_a_failed_off_of_a_device_that_is_off_is_done(lab: Lab) -> None:
    lab.agent(SWITCH.replace("on|off)", "off) echo off > state; echo 'Connection lost' >&2; exit 1;;\n  on)"))
    outcome = await lab.run(action="off")
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))


@pytest.mark.parametrize(
    "status",
    [
        "exit 1",
        "echo 'syntax error' >&2; exit 2",
        "echo Status: ON; exit 2",
        "echo Status: OFF; exit 0",
        "kill -9 $$",
    ],
)
async def test_a_status_that_is_not_clear_proves_nothing(lab: Lab, status: str) -> None:
    lab.agent(f'case "$action" in\n  status) {status};;\nesac\n')
    outcome = await lab.run(action="off")
    assert (outcome.result, outcome.proofs) == (MethodResult.UNKNOWN, ())


async def test_a_reboot_without_a_status_afterwards_proves_nothing(lab: Lab) -> None:
    lab.agent('[ "$action" = reboot ]')
    outcome = await lab.run(action="reboot")
    assert (outcome.result, outcome.proofs) == (MethodResult.UNKNOWN, ())


async def test_a_reboot_is_proven_by_agents_that_verify_off(lab: Lab) -> None:
    lab.agent()
    assert (await lab.run()).proofs == (FenceProof.POWER,)
    cycle = await lab.run(method="cycle")
    assert (cycle.result, cycle.proofs) == (MethodResult.DONE, ())


async def test_a_device_that_a_reboot_left_off_is_switched_on(lab: Lab) -> None:
    lab.agent(SWITCH.replace("reboot) echo on", "reboot) echo off"))
    outcome = await lab.run(action="reboot")
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))
    assert lab.actions == ["reboot", "status", "on", "status"]


async def test_a_fabric_agent_never_proves_power(lab: Lab) -> None:
    lab.agent(actions=("on", "off", "status"))
    assert (await lab.run(action="off")).proofs == ()
    lab.state.write_text("on")
    assert (await lab.run(action="off", proof=FenceProof.STORAGE)).proofs == (FenceProof.STORAGE,)


async def test_a_method_without_a_proof_proves_nothing(lab: Lab) -> None:
    lab.agent()
    outcome = await lab.run(action="off", proof=FenceProof.NONE)
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, ())


async def test_an_agent_without_status_never_proves_power(lab: Lab) -> None:
    lab.agent(actions=("on", "off", "reboot"))
    outcome = await lab.run(action="off")
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, ())


# --- a new controller ---


async def test_a_repeated_off_asks_first(lab: Lab) -> None:
    lab.agent()
    lab.state.write_text("off\n")
    outcome = await lab.run(action="off", is_repeat=True)
    assert (outcome.result, outcome.proofs, lab.actions) == (
        MethodResult.DONE,
        (FenceProof.POWER,),
        ["status"],
    )


async def test_a_repeated_off_acts_if_the_device_is_on(lab: Lab) -> None:
    lab.agent()
    assert (await lab.run(action="off", is_repeat=True)).proofs == (FenceProof.POWER,)
    assert lab.actions == ["status", "off", "status"]


async def test_a_repeated_reboot_is_not_done_twice(lab: Lab) -> None:
    lab.agent()
    outcome = await lab.run(action="reboot", is_repeat=True)
    assert (outcome.result, outcome.proofs, lab.actions) == (MethodResult.UNKNOWN, (), ["status"])
    outcome = await lab.run(action="reboot", is_repeat=True, boot_id="new")
    assert (outcome.result, outcome.proofs, lab.actions) == (
        MethodResult.DONE,
        (FenceProof.POWER,),
        ["status"],
    )


async def test_a_repeated_reboot_that_stopped_halfway_is_finished(lab: Lab) -> None:
    lab.agent()
    lab.state.write_text("off\n")
    outcome = await lab.run(action="reboot", is_repeat=True)
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))
    assert lab.actions == ["status", "on", "status"]


@pytest.mark.parametrize("script", ["exit 1", "[ $action = status ] && exit 1"])
async def test_a_repeat_without_an_answer_is_unknown(lab: Lab, script: str) -> None:
    lab.agent(f"{script}\n")
    outcome = await lab.run(action="off", is_repeat=True)
    assert (outcome.result, set(lab.actions)) == (MethodResult.UNKNOWN, {"status"})


# --- standard input ---


async def test_values_arrive_as_written(lab: Lab) -> None:
    lab.agent()
    await lab.run(action="off", passwd='"a=b" ', ssl_insecure="yes", verbose="1", colour="red")
    assert lab.input == ["action=status", "ip=192.0.2.1", 'password=""a=b" "', "ssl_insecure=1"]


async def test_false_is_never_sent(lab: Lab) -> None:
    lab.agent()
    outcome = await lab.run(action="off", ssl_insecure="false", colour="red")
    assert lab.input == ["action=status", "ip=192.0.2.1"]
    assert "ignores colour" in outcome.message


@pytest.mark.parametrize(
    ("parameter", "value", "problem"),
    [
        ("passwd", "a\naction=on", "line break"),
        ("ssl_insecure", "perhaps", "write true or false"),
        ("power_wait", "soon", "write a whole number"),
        ("method", "kick", "choose one of onoff, cycle"),
        ("action", "explode", "choose one of"),
    ],
)
async def test_a_value_that_the_agent_cannot_take_stops_it_before_it_acts(
    lab: Lab, parameter: str, value: str, problem: str
) -> None:
    lab.agent()
    given: dict[str, Any] = {parameter: value}
    outcome = await lab.run(**given)
    assert (outcome.result, lab.actions) == (MethodResult.FAILED, [])
    assert problem in outcome.message


async def test_a_missing_parameter_stops_the_agent_before_it_acts(lab: Lab) -> None:
    lab.agent()
    agents = FenceAgents(directory=lab.directory)
    outcome = await agents.run(make_task(agent="fence_lab", action="off"))
    assert (outcome.result, lab.actions) == (MethodResult.FAILED, [])
    assert "ip: is missing" in outcome.message


@pytest.mark.parametrize("agent", ["fence_none", "../bin/sh", "sh", ""])
async def test_an_agent_is_only_looked_for_in_its_directory(lab: Lab, agent: str) -> None:
    outcome = await lab.run(agent=agent)
    assert outcome.result is MethodResult.FAILED
    assert str(lab.directory) in outcome.message


# --- secrets ---


async def test_a_secret_is_only_on_standard_input(lab: Lab) -> None:
    lab.agent('echo "refused: $input" >&2; exit 1\n')
    secrets = {"shared": {"password": b"other"}, "node": {"password": b"s3cr3t-word\n"}}
    outcome = await lab.run(action="off", secret_names=("shared", "node"), secrets=secrets)
    assert "password=s3cr3t-word" in lab.input
    assert "s3cr3t" not in (lab.directory / "environment").read_text() + (lab.directory / "line").read_text()
    assert "s3cr3t" not in outcome.message
    assert "password=[secret]" in outcome.message


async def test_a_key_is_a_file_that_ends_with_the_method(lab: Lab) -> None:
    lab.agent(
        'cp "$(echo "$input" | sed -n s/^identity_file=//p)" key; stat -L -c %a "$(echo "$input" | sed -n s/^identity_file=//p)" > mode\n'
        + SWITCH
    )
    key = b"-----BEGIN KEY-----\nabc\n-----END KEY-----\n"
    outcome = await lab.run(action="off", secret_names=("s",), secrets={"s": {"identity_file": key}})
    assert outcome.result is MethodResult.DONE
    assert (lab.directory / "key").read_bytes() == key
    assert (lab.directory / "mode").read_text() == "600\n"
    path = next(line.partition("=")[2] for line in lab.input if line.startswith("identity_file"))
    assert not Path(path).exists()


async def test_a_key_is_read_from_its_url_at_each_run(lab: Lab) -> None:
    lab.agent()
    keys = iter(["first", "second"])

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{next(keys)}\n")

    app = web.Application()
    app.router.add_get("/key", answer)
    async with TestServer(app) as server:
        for key in ("first", "second"):
            parameters: dict[str, Any] = {"password@url": server.make_url("/key?token=t0ken")}
            assert (await lab.run(action="off", **parameters)).result is MethodResult.DONE
            assert f"password={key}" in lab.input
        parameters = {"password@url": server.make_url("/other?token=t0ken")}
        outcome = await lab.run(action="off", **parameters)
    assert outcome.result is MethodResult.FAILED
    assert "/other: the answer is 404 Not Found" in outcome.message
    assert "t0ken" not in outcome.message


async def test_a_missing_secret_stops_the_agent_before_it_acts(lab: Lab) -> None:
    lab.agent()
    outcome = await FenceAgents(directory=lab.directory).run(
        make_task(agent="fence_lab", secret_names=("s",))
    )
    assert (outcome.result, lab.actions) == (MethodResult.FAILED, [])
    assert "Secret s" in outcome.message


async def test_a_parameter_in_the_method_and_in_a_secret_is_refused(lab: Lab) -> None:
    lab.agent()
    outcome = await lab.run(password="a", secret_names=("s",), secrets={"s": {"password": b"b"}})
    assert (outcome.result, lab.actions) == (MethodResult.FAILED, [])
    assert "password: is also in Secret s; keep one of them" in outcome.message


# --- nonsense ---


@pytest.mark.parametrize("script", ["head -c 10000000 /dev/zero | tr '\\0' x", "sleep 1000 & exit 3"])
async def test_an_agent_that_prints_much_or_leaves_processes_is_bounded(lab: Lab, script: str) -> None:
    lab.agent(f"[ $action = status ] && exit 1\n{script}\n")
    outcome = await lab.run(action="off")
    assert (outcome.result, outcome.proofs) == (MethodResult.UNKNOWN, ())
    assert len(outcome.message) < 1500


async def test_an_agent_that_hangs_is_killed_with_its_processes(lab: Lab) -> None:
    lab.agent("sleep 1000 & echo $! > child\nwait\n")
    outcome = await lab.run(action="off", seconds=1.0)
    assert (outcome.result, outcome.proofs, lab.actions) == (MethodResult.UNKNOWN, (), ["off"])
    assert ended(int((lab.directory / "child").read_text()))


@pytest.mark.parametrize("xml", ["", "hello", "<resource-agent/>", "x" * 10_000_000])
async def test_an_agent_without_metadata_never_acts(lab: Lab, xml: str) -> None:
    lab.agent()
    (lab.directory / "fence_lab.xml").write_text(xml)
    outcome = await lab.run(action="off")
    assert (outcome.result, lab.actions) == (MethodResult.FAILED, [])
    assert "metadata" in outcome.message
