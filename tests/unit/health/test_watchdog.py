"""Watched agents that stop touching their files, whose processes end, and what the guardian does about it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletx.health.client import release, touch
from kubeletx.health.machine import SimulatedMachine
from kubeletx.health.model import Begin, BootReason
from kubeletx.health.watchdog.agents import AgentWatch
from kubeletx.health.watchdog.ages import WatchedAgent
from kubeletx.health.watchdog.evidence import ask_stack, out_of_memory
from kubeletx_testing.waiting import block_until
from tests.unit.health.kills import KILLER, KillTrial
from tests.unit.health.trial import SHORT, Trial

DONE = 80
"""Seconds from a hit to the reboot: one tick for evidence, 30 s, nothing to halt, 30 s."""
AGENT = "import sys,signal;from pathlib import Path;from kubeletx.health.client import stack_on_signal as f;f('cam',Path(sys.argv[1]));print(flush=True);signal.pause()"


@pytest.fixture
def node(tmp_path: Path) -> Trial:
    return Trial(tmp_path, SHORT)


def watched(node: Trial, **limits: Any) -> Trial:
    """The node with limits for the agent cam."""
    other = Trial(node.base / "other", SHORT, watchdog={"agents": {"cam": limits}})
    touch("cam", other.run)
    other.tick(10)
    return other


def logged(node: Trial, reason: str) -> list[str]:
    return [line for line in node.lines if line.startswith(reason)]


def test_an_agent_that_touches_its_file_is_left_alone(node: Trial) -> None:
    for _ in range(20):
        touch("cam", node.run)
        node.tick(30)
    assert node.reboots == []
    assert logged(node, "Agent") == []


def test_a_silent_agent_is_warned_about_and_then_ends_the_boot(node: Trial) -> None:
    touch("cam", node.run)
    node.tick(10 + 290)
    assert [line.split(":")[0] for line in logged(node, "Agent")] == ["AgentSlow", "AgentSilent"]
    node.tick(10 + DONE)
    assert [line["bootReason"] for line in node.reboots] == ["WatchdogHung"]
    assert "agent cam has not touched" in node.reboots[0]["reason"]
    assert node.status.boot_reason == BootReason.WATCHDOG_HUNG


def test_an_agent_that_comes_back_in_the_last_moment_is_spared(node: Trial) -> None:
    touch("cam", node.run)
    node.tick(310)
    assert len(logged(node, "WatchdogHit")) == 1
    touch("cam", node.run)
    node.tick(200)
    assert node.reboots == []
    assert logged(node, "AgentAlive")


def test_a_released_agent_is_not_watched(node: Trial) -> None:
    touch("cam", node.run)
    node.tick(100)
    release("cam", node.run)
    release("cam", node.run)
    node.tick(400)
    assert node.reboots == []


def test_a_jump_of_the_clock_hits_no_agent(node: Trial) -> None:
    touch("cam", node.run)
    for stamp in (4e9, 0, 1e9):
        os.utime(node.run / "cam.touch", (stamp, stamp))
        node.tick(290)
    assert node.reboots == []
    node.tick(20 + DONE)
    assert len(node.reboots) == 1


def test_the_age_goes_on_after_a_restart_of_the_guardian(node: Trial) -> None:
    touch("cam", node.run)
    node.tick(200)
    node.start()
    node.tick(110 + DONE)
    assert len(node.reboots) == 1


def test_a_unit_is_restarted_before_the_node(node: Trial) -> None:
    node = watched(node, unit="cam.service", hit=200, restarts=2)
    node.tick(2 * 210)
    block_until(lambda: len(logged(node, "would restart cam.service")) == 2)
    assert [line.rpartition(": ")[2] for line in logged(node, "WatchdogRestart")] == [
        "restart 1 of 2",
        "restart 2 of 2",
    ]
    assert node.reboots == []
    node.tick(200 + DONE)
    assert node.reboots[0]["reason"].endswith("a restart of its unit was tried 2 times")


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (1, 2), (9, 2)])
def test_a_restart_that_fails_is_tried_a_second_time(
    node: Trial, monkeypatch: pytest.MonkeyPatch, failures: int, tries: int
) -> None:
    tried: list[str] = []

    def restart(_machine: SimulatedMachine, unit: str) -> None:
        tried.append(unit)
        if len(tried) <= failures:
            raise OSError("systemctl did not end within 30 s")

    monkeypatch.setattr(SimulatedMachine, "restart_unit", restart)
    node = watched(node, unit="cam.service", hit=200)
    node.tick(200)
    for _ in range(5):
        node.tick(10)
        block_until(lambda: not any(one.name == "restart cam.service" for one in threading.enumerate()))
    assert len(logged(node, "WatchdogRestart")) == 1
    assert tried == ["cam.service"] * tries
    assert len(logged(node, "CannotRestart")) == bool(failures)


def test_no_unit_is_restarted_while_the_boot_ends(node: Trial) -> None:
    node = watched(node, unit="cam.service", hit=180)
    node.publish("domainmgr", "DomainStatus", "app", Activated=True)
    node.order("poweroff")
    node.tick(300)
    assert logged(node, "WatchdogHit")
    assert logged(node, "WatchdogRestart") == []


def test_restarts_are_forgotten_after_an_hour(node: Trial) -> None:
    node = watched(node, unit="cam.service", restarts=1)
    for _ in range(3):
        node.tick(310)
        for _ in range(13):
            touch("cam", node.run)
            node.tick(300)
    assert (len(logged(node, "WatchdogRestart")), node.reboots) == (3, [])


def test_a_hit_while_an_image_is_tested_does_not_wait_for_the_verdict(node: Trial) -> None:
    node.order("install", "IMGB")
    node.until_reboot()
    (node.run / "watchdog" / "pid").mkdir(parents=True)
    (node.run / "watchdog" / "pid" / "cam.pid").touch()
    node.settings.items["timer.test.baseimage.update"] = 3600  # type: ignore[index] # a dict
    node.start()
    node.tick(80 + DONE)
    assert [line["bootReason"] for line in node.reboots] == ["Update", "WatchdogPid"]
    assert node.states == ("active", "inprogress", "IMGA")


@pytest.fixture
def process(node: Trial) -> Iterator[subprocess.Popen[bytes]]:
    """A process that shows its stack as agent cam, and is watched by its pid file."""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, str(node.run)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child
        finally:
            child.kill()


def test_a_process_that_ends_ends_the_boot(node: Trial, process: subprocess.Popen[bytes]) -> None:
    (node.run / "watchdog" / "pid").mkdir(parents=True)
    (node.run / "watchdog" / "pid" / "cam.pid").touch()
    node.tick(300)
    assert node.reboots == []
    process.kill()
    process.wait()
    node.tick(60 + DONE)
    assert [line["bootReason"] for line in node.reboots] == ["WatchdogPid"]


def test_the_stack_of_a_hung_process_is_kept(node: Trial, process: subprocess.Popen[bytes]) -> None:
    touch("cam", node.run)
    node.tick(310)
    block_until(lambda: "most recent call first" in (node.run / "cam.stack").read_text())
    node.tick(DONE)
    assert "most recent call first" in node.status.reboot_stack
    assert "<module>" in (node.persist / "kubeletx-health" / "cam.stack").read_text()
    process.send_signal(0)


def test_evidence_of_many_hits_takes_the_space_of_one(node: Trial) -> None:
    """Defect 11."""
    node = watched(node, unit="cam.service", hit=200, restarts=3)
    for hit in range(3):
        node.tick(200)
        (node.run / "cam.stack").write_bytes(b"%d" % hit * 100_000)
        node.tick(20)
        touch("cam", node.run)
        node.tick(10)
    assert len(logged(node, "WatchdogRestart")) == 3
    kept = node.persist / "kubeletx-health"
    (stack,) = kept.glob("*.stack")
    assert stack.read_bytes() == b"2" * 100_000


def test_a_process_without_handler_gets_no_signal() -> None:
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=True) as child:
        assert not ask_stack(child.pid)
        child.terminate()
    assert child.returncode == -signal.SIGTERM
    assert not any(map(ask_stack, (None, 0, 1, os.getpid(), 1 << 30)))


@pytest.mark.parametrize("content", [b"", b"none\n", b"-1", b"\xff" * 64, b"1" * 4096])
def test_rubbish_in_a_pid_file_is_told_once_and_no_hit(node: Trial, content: bytes) -> None:
    (node.run / "watchdog" / "pid").mkdir(parents=True)
    (node.run / "watchdog" / "pid" / "cam.pid").touch()
    (node.run / "cam.pid").write_bytes(content)
    node.tick(600)
    assert node.reboots == []
    assert len(logged(node, "BadWatchdog")) == 1


@pytest.mark.parametrize(
    "section",
    [
        "on",
        {"agents": []},
        {"agents": {"cam": {"hit": 5}}},
        {"agents": {"cam": {"hits": 5}}},
        {"agents": {"cam": 7}},
    ],
)
def test_a_bad_section_is_told_and_the_defaults_count(tmp_path: Path, section: object) -> None:
    node = Trial(tmp_path, watchdog=section)
    assert len(logged(node, "BadWatchdog: watchdog.agents")) == 1
    touch("cam", node.run)
    node.tick(320 + DONE)
    assert len(node.reboots) == 1


def test_a_process_killed_for_lack_of_memory_is_the_reason(tmp_path: Path) -> None:
    log, now = tmp_path / "kmsg", int(time.monotonic() * 1_000_000)
    killed = "Out of memory: Killed process {} (cam) total-vm:9kB"
    log.write_text(
        f"6,1,{now - 10**9},-;{killed.format(41)}\n6,2,{now},-;eth0: up\n SUBSYSTEM=net\n"
        f"3,3,{now},-,caller=T1;Memory cgroup out of memory: Killed process 42 (cam) total-vm:9kB\n"
    )
    assert out_of_memory(300, log) == "the kernel killed process 42 (cam) for lack of memory"
    log.write_text(f"6,1,{now - 10**9},-;{killed.format(41)}\n")
    assert out_of_memory(300, log) == ""
    assert out_of_memory(300, tmp_path / "none") == ""
    limit = "6,1,{},-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/kubepods/pod1,task=cam,pid=41,uid=0\n"
    log.write_text(f"{limit.format(now)}3,2,{now},-;Memory cgroup out of memory: {killed.format(41)[15:]}\n")
    assert out_of_memory(300, log) == "", "a container at its own limit is no reason of a hang"
    log.write_text(f"6,1,{now},-;{killed.format(41)}\n")
    watch = AgentWatch(tmp_path, tmp_path, {}, lambda reason, message: None, kernel_log=log)
    touch("cam", tmp_path)
    agents: dict[str, WatchedAgent] = {}
    begins: list[Begin] = []
    for now_ticks in range(0, 320, 10):
        agents, effects = watch.tick(agents, now_ticks, is_busy=False)
        begins += [effect for effect in effects if isinstance(effect, Begin)]
    assert [begin.boot_reason for begin in begins] == [BootReason.OOM]


def test_a_restart_of_a_unit_is_not_lost_by_a_kill(memory_path: Path) -> None:
    section = {"agents": {"cam": {"unit": "cam.service", "hit": 200}}}
    start = memory_path / "start"
    node = KillTrial(start, watchdog=section)
    touch("cam", node.run)
    node.tick(10 + 200)
    assert logged(node, "WatchdogHit")
    kill, was_killed = 0, True
    while was_killed:
        shutil.copytree(start, memory_path / str(kill), copy_function=os.link)  # the same inodes
        copy = KillTrial(memory_path / str(kill), watchdog=section)
        copy.kill_at(kill)
        copy.tick()
        was_killed = KILLER.left is None
        copy.tick()
        block_until(partial(logged, copy, "would restart cam.service"))
        assert logged(copy, "WatchdogRestart")
        kill += 1
