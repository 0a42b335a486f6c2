"""The database is lost: running pods are found again on their runtimes, and it is reported what was lost."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api import names
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, bound_runtime, is_ready, pod_manifest, put_manifest
from tests.integration.support.survival import (
    JSON,
    holds,
    ids,
    life,
    log_lines,
    ready_sandboxes,
    traces,
    until,
)

MakeAgent = Callable[..., PrivateAgent]


def delete(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def truncate(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}-*"):
        one.unlink()
    os.truncate(path, path.stat().st_size // 3 + 7)


def scribble(path: Path) -> None:
    noise = random.Random(5).randbytes(4096)
    for one in path.parent.glob(f"{path.name}*"):
        one.write_bytes(noise)


def replace_by_directory(path: Path) -> None:
    delete(path)
    path.mkdir()


def is_orphan(pod: Pod) -> bool:
    return pod.metadata.annotations.get(names.ORPHANED) == "true"


@pytest.mark.parametrize("lose", [delete, truncate, scribble, replace_by_directory])
def test_pods_are_found_again_and_claimed_by_their_sources(
    make_agent: MakeAgent, manifests: Path, lab: Lab, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    assert agent.cli("runtime", "cordon", "containerd-a").returncode == 0
    put_manifest(manifests, pod_manifest("moved"))  # the default is cordoned: it goes to the other one
    assert bound_runtime(agent.wait_for("moved")) == "containerd-b"
    assert agent.cli("runtime", "uncordon", "containerd-a").returncode == 0
    for name in lab.containerds:
        put_manifest(manifests, pod_manifest(f"on-{name}", runtime=name))
    file = tmp_path / "applied.json"
    file.write_text(json.dumps(pod_manifest("applied")))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    names = ["moved", "applied", *(f"on-{name}" for name in lab.containerds)]
    before = {name: agent.wait_for(name) for name in names}
    agent.stop()
    mark = len(log_lines(agent))
    lose(agent.root_dir / "kubeletx.db")
    agent.start()
    for name, old in before.items():
        after = agent.wait_for(name)
        assert life(after) == life(old)
        assert bound_runtime(after) == bound_runtime(old)
        assert not is_orphan(after)
    warnings = [line for line in log_lines(agent)[mark:] if line["level"] == "warning"]
    assert any("state database" in line["event"] for line in warnings), warnings
    assert ready_sandboxes(lab, agent) == {pod.name: [bound_runtime(pod)] for pod in before.values()}
    agent.kill()  # and what was found again is lasting
    agent.start()
    for name, old in before.items():
        assert life(agent.wait_for(name)) == life(old)
    for path in list(manifests.iterdir()):
        path.unlink()
    assert agent.cli("delete", "pod", "applied").returncode == 0
    until(lambda: agent.pods() == (), "no pod")
    assert traces(agent) == []


def test_a_pod_that_no_one_claims_is_shown_as_orphaned_and_can_be_deleted(
    make_agent: MakeAgent, manifests: Path
) -> None:
    agent = make_agent()
    agent.start()
    path = put_manifest(
        manifests,
        pod_manifest("lonely", runtime="containerd-b", container={"resources": {"requests": {"cpu": "10m"}}}),
    )
    kept = put_manifest(manifests, pod_manifest("kept"))
    before = agent.wait_for("lonely")
    agent.wait_for("kept")
    agent.stop()
    delete(agent.root_dir / "kubeletx.db")
    path.unlink()
    agent.start()
    found = agent.wait_for("lonely", is_orphan)
    assert bound_runtime(found) == "containerd-b"
    holds(lambda: agent.pod("lonely"), "an orphan is left alone", seconds=1)
    agent.restart()
    agent.wait_for("lonely", is_orphan)
    holds(lambda: agent.pod("lonely"), "an orphan is left alone over a restart too", seconds=1)
    table = agent.cli("get", "pods")
    assert "lonely-lab" in table.stdout
    gone = agent.cli("delete", "pod", "lonely-lab")
    assert gone.returncode == 0, gone.stderr
    assert agent.pod("lonely") is None
    until(lambda: traces(agent, pods=agent.pods()) == [], "nothing is left of the orphan")
    assert is_ready(agent.wait_for("kept"))
    put_manifest(manifests, pod_manifest("lonely", runtime="containerd-b"))
    assert ids(agent.wait_for("lonely")) != ids(before)
    assert kept.exists()


def test_a_runtime_that_is_away_when_the_database_is_lost_gives_its_pods_back_later(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    agent = make_agent()
    agent.start()
    put_manifest(manifests, pod_manifest("named", runtime="containerd-b"))
    before = agent.wait_for("named")
    agent.kill()
    delete(agent.root_dir / "kubeletx.db")
    lab["containerd-b"].stop_daemon()
    try:
        agent.start()
        agent.wait_for("named", lambda pod: pod.status.phase == "Pending")
    finally:
        lab["containerd-b"].start_daemon()
    after = agent.wait_for("named", timeout_seconds=40)
    assert life(after) == life(before)
    assert ready_sandboxes(lab, agent) == {after.name: ["containerd-b"]}


def test_a_file_that_stands_in_the_way_of_the_history_while_the_agent_runs_costs_no_pod(
    make_agent: MakeAgent, manifests: Path
) -> None:
    agent = make_agent()
    agent.start()
    put_manifest(manifests, pod_manifest("there"))
    before = agent.wait_for("there")
    delete(agent.root_dir / "kubeletx.db")  # under its feet
    put_manifest(manifests, pod_manifest("more"))
    agent.wait_for("more")
    agent.restart()
    assert life(agent.wait_for("there")) == life(before)
    agent.wait_for("more")
