"""The disk is full, the manifest directory vanishes: no crash, no busy loop, no lost pod."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from survival import JSON, cpu_seconds, holds, life, log_lines, logged, traces, until

from kubeletx.testing.lab import Lab, PrivateAgent, SmallDisk, pod_manifest, put_manifest

MakeAgent = Callable[..., PrivateAgent]
MiB = 1 << 20


@pytest.fixture
def disk(lab: Lab) -> Iterator[SmallDisk]:
    """A file system of 24 MiB where the agent's root directory will be."""
    with SmallDisk(lab.base_dir / "full-disk", size_bytes=24 * MiB) as one:
        yield one
        one.free()


@pytest.fixture
def full_agent(disk: SmallDisk, make_agent: MakeAgent) -> PrivateAgent:
    """An agent on the small disk, started."""
    agent = make_agent(name="full-disk", flags=(JSON,))
    agent.start()
    return agent


def test_a_full_disk_keeps_the_pods_and_is_over_when_there_is_space(
    full_agent: PrivateAgent, disk: SmallDisk, manifests: Path
) -> None:
    agent = full_agent
    put_manifest(manifests, pod_manifest("before", runtime="containerd-a"))
    gone = put_manifest(manifests, pod_manifest("going", runtime="containerd-b"))
    before = agent.wait_for("before")
    agent.wait_for("going")
    disk.fill()
    used, began = cpu_seconds(agent.pid), time.monotonic()
    put_manifest(
        manifests,
        pod_manifest(
            "hungry",
            container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            spec={"volumes": [{"name": "v", "emptyDir": {}}]},
        ),
    )
    gone.unlink()  # stopping needs no disk
    agent.wait_gone("going")
    agent.wait_for("hungry", lambda pod: pod.status.phase == "Pending")
    holds(
        lambda: agent.is_running and (pod := agent.pod("before")) is not None and life(pod) == life(before),
        "the pod runs on",
        seconds=6,
    )
    assert cpu_seconds(agent.pid) - used < 0.35 * (time.monotonic() - began), "no busy loop"
    disk.free()
    agent.wait_for("hungry", timeout_seconds=60)
    assert life(agent.wait_for("before")) == life(before)
    lines = [line for line in log_lines(agent) if line["level"] in ("warning", "error", "critical")]
    assert not [line for line in lines if "exception" in line or "bug" in line["event"]], lines
    agent.restart()
    assert life(agent.wait_for("before")) == life(before)
    agent.wait_for("hungry")
    for path in list(manifests.iterdir()):
        path.unlink()
    until(lambda: agent.pods() == (), "no pod")
    assert traces(agent) == []


def test_an_agent_starts_on_a_full_disk_and_finds_its_pods(
    full_agent: PrivateAgent, disk: SmallDisk, manifests: Path
) -> None:
    agent = full_agent
    put_manifest(manifests, pod_manifest("before", runtime="containerd-b"))
    before = agent.wait_for("before")
    agent.kill()
    disk.fill()
    agent.start()
    assert life(agent.wait_for("before")) == life(before)
    put_manifest(manifests, pod_manifest("later"))
    agent.wait_for("later", lambda pod: pod.status.phase == "Pending")
    disk.free()
    agent.wait_for("later", timeout_seconds=60)
    assert life(agent.wait_for("before")) == life(before)


def test_a_manifest_directory_that_vanishes_keeps_its_pods(make_agent: MakeAgent, manifests: Path) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    for number in range(3):
        put_manifest(manifests, pod_manifest(f"pod-{number}"))
    before = {f"pod-{number}": agent.wait_for(f"pod-{number}") for number in range(3)}
    saved = manifests.with_name("saved")
    shutil.copytree(manifests, saved)
    shutil.rmtree(manifests)
    until(lambda: logged(agent, "Manifest path kept its pods"), "the warning")
    holds(lambda: len(agent.pods()) == 3, "the pods are kept", seconds=2)
    agent.kill()
    agent.start()  # a path missing at start is an empty set, but nothing says that these pods are to go
    manifests.mkdir()
    for path in saved.iterdir():
        shutil.copy(path, manifests)
    for name, old in before.items():
        after = agent.wait_for(name)
        assert after.status.phase == "Running"
        assert after.uid == old.uid
    assert len(logged(agent, "Manifest path kept its pods")) == 1


def test_a_manifest_directory_that_comes_back_is_taken_up_where_it_was(
    make_agent: MakeAgent, manifests: Path
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    for number in range(3):
        put_manifest(manifests, pod_manifest(f"pod-{number}"))
    before = {f"pod-{number}": agent.wait_for(f"pod-{number}") for number in range(3)}
    aside = manifests.with_name("aside")
    manifests.rename(aside)
    until(lambda: logged(agent, "Manifest path kept its pods"), "the warning")
    (aside / "pod-2.json").unlink()
    aside.rename(manifests)
    until(lambda: logged(agent, "Found the manifest path"), "the end of it")
    agent.wait_gone("pod-2")
    for name in ("pod-0", "pod-1"):
        assert life(agent.wait_for(name)) == life(before[name])
    put_manifest(manifests, pod_manifest("new"))
    agent.wait_for("new")
