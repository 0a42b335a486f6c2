"""The disk is full, the manifest directory vanishes: no crash, no busy loop, no lost pod, and it is reported why."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import Lab, PrivateAgent, SmallDisk, pod_manifest, put_manifest
from tests.integration.support.survival import (
    JSON,
    container,
    cpu_seconds,
    events,
    holds,
    life,
    log_lines,
    logged,
    traces,
    until,
)

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
    """An agent on the small disk, started. It refuses no pod for the disk's sake: here the full disk itself is met."""
    agent = make_agent(name="full-disk", flags=(JSON, "--eviction-hard=nodefs.available<0%"))
    agent.start()
    return agent


def run(agent: PrivateAgent, *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    done = agent.cli(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(agent: PrivateAgent, *arguments: str) -> str:
    """Standard error of a command that cannot be carried out on a full disk: one line in words."""
    done = agent.cli(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert str(agent.root_dir) in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_full_disk_keeps_the_pods_and_is_over_when_there_is_space(
    full_agent: PrivateAgent, disk: SmallDisk, manifests: Path, tmp_path: Path
) -> None:
    agent = full_agent
    talk = ["sh", "-c", "echo hello; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    put_manifest(manifests, pod_manifest("before", runtime="containerd-a", command=talk))
    gone = put_manifest(manifests, pod_manifest("going", runtime="containerd-b"))
    applied = {name: put_manifest(tmp_path, pod_manifest(name)) for name in ("kept", "deleted", "new")}
    for name in ("kept", "deleted"):
        run(agent, "apply", "-f", str(applied[name]))
    before, kept = agent.wait_for("before"), agent.wait_for("kept")
    agent.wait_for("going")
    agent.wait_for("deleted")
    until(lambda: "hello" in run(agent, "logs", "before-lab"), "a line of the log")
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
    until(lambda: "disk full" in said_about(agent, "hungry-lab"), "an event that names the disk")
    waiting = container(agent.wait_for("hungry", lambda pod: container(pod).state.waiting)).state.waiting
    assert waiting is not None
    assert "free space" in (waiting.message or "")
    reported = run(agent, "describe", "pod", "hungry-lab")
    assert "disk full" in reported
    assert "BindingNotWritten" in run(agent, "get", "pod", "hungry-lab")
    assert run(agent, "logs", "before-lab") == "hello\n"
    assert run(agent, "exec", "before-lab", "--", "echo", "fine") == "fine\n"
    for kind in ("pods", "runtimes", "node", "images", "events"):
        run(agent, "get", kind)
    refused(agent, "apply", "-f", str(applied["new"]))
    put_manifest(tmp_path, pod_manifest("kept", metadata={"labels": {"v": "2"}}))
    refused(agent, "apply", "-f", str(applied["kept"]))
    refused(agent, "replace", "-f", str(applied["kept"]))
    refused(agent, "replace", "--force", "-f", str(applied["kept"]))
    refused(agent, "runtime", "add", f"container:third:{agent.lab['containerd-b'].endpoint}")
    assert [one.name for one in agent.runtimes()] == ["containerd-a", "containerd-b"]
    run(agent, "delete", "pod", "deleted")  # taking away needs no space
    run(agent, "runtime", "cordon", "containerd-b")  # nor does a file without content
    run(agent, "runtime", "uncordon", "containerd-b")
    assert life(agent.wait_for("kept")) == life(kept)
    holds(
        lambda: agent.is_running and (pod := agent.pod("before")) is not None and life(pod) == life(before),
        "the pod runs on",
        seconds=6,
    )
    assert cpu_seconds(agent.pid) - used < 0.35 * (time.monotonic() - began), "no busy loop"
    disk.free()
    agent.wait_for("hungry")
    assert life(agent.wait_for("before")) == life(before)
    run(agent, "apply", "-f", str(applied["new"]))
    agent.wait_for("new")
    run(agent, "apply", "-f", str(applied["kept"]))
    assert life(agent.wait_for("kept", lambda pod: pod.metadata.labels == {"v": "2"})) == life(kept)
    lines = [line for line in log_lines(agent) if line["level"] in ("warning", "error", "critical")]
    assert not [line for line in lines if "exception" in line or "bug" in line["event"]], lines
    assert len(lines) < 12, "an outage is a few lines, however long it lasts"
    agent.restart()
    assert life(agent.wait_for("before")) == life(before)
    agent.wait_for("hungry")
    agent.wait_for("new")
    assert life(agent.wait_for("kept", lambda pod: pod.metadata.labels == {"v": "2"})) == life(kept)
    until(lambda: agent.pod("deleted") is None, "the end of what was deleted without a record")
    for path in list(manifests.iterdir()):
        path.unlink()
    run(agent, "delete", "pod", "kept", "new")
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
    until(lambda: "disk full" in said_about(agent, "later-lab"), "an event that names the disk")
    agent.wait_for("later", lambda pod: pod.status.phase == "Pending")
    disk.free()
    agent.wait_for("later")
    assert life(agent.wait_for("before")) == life(before)


def test_a_first_start_on_a_full_disk_is_refused_in_one_line(disk: SmallDisk, make_agent: MakeAgent) -> None:
    agent = make_agent(name="full-disk")
    disk.fill()
    done = subprocess.run(agent.argv(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr  # systemd tries again
    assert done.stderr.splitlines()[-1].startswith("Error: --root-dir: ")
    assert f"cannot use {disk.directory}: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    disk.free()
    agent.start()
    assert agent.pods() == ()


def said_about(agent: PrivateAgent, name: str) -> str:
    """Messages of a pod's events."""
    return "\n".join(one["message"] for one in events(agent) if one["involvedObject"].get("name") == name)


def test_a_manifest_directory_that_vanishes_keeps_its_pods(make_agent: MakeAgent, manifests: Path) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    for number in range(3):
        put_manifest(manifests, pod_manifest(f"pod-{number}"))
    before = {f"pod-{number}": agent.wait_for(f"pod-{number}") for number in range(3)}
    saved = manifests.with_name("saved")
    shutil.copytree(manifests, saved)
    shutil.rmtree(manifests)
    until(lambda: logged(agent, "Kept the pods of the manifest path"), "the warning")
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
    assert len(logged(agent, "Kept the pods of the manifest path")) == 1


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
    until(lambda: logged(agent, "Kept the pods of the manifest path"), "the warning")
    (aside / "pod-2.json").unlink()
    aside.rename(manifests)
    until(lambda: logged(agent, "Found the manifest path"), "the end of it")
    agent.wait_gone("pod-2")
    for name in ("pod-0", "pod-1"):
        assert life(agent.wait_for(name)) == life(before[name])
    put_manifest(manifests, pod_manifest("new"))
    agent.wait_for("new")
