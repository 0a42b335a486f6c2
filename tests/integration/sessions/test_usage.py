"""The usage of a session is what the kernel counts in its pod's cgroup while the session is open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubeletx.kube.types.core import Pod
from tests.integration.support.bench import Bench, until

BUSY = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done"


def cpu_seconds(bench: Bench, pod: Pod) -> float:
    """CPU time of the pod's cgroup since it was made, of a kernel with cgroup v1 or v2."""
    below = f"{bench.agent.cgroup_root}/kubepods/*/pod{pod.metadata.uid}"
    for path in Path("/sys/fs/cgroup").glob(f"cpuacct/{below}/cpuacct.usage"):
        return int(path.read_text()) / 1e9
    (path,) = Path("/sys/fs/cgroup").glob(f"{below}/cpu.stat")
    return int(path.read_text().split()[1]) / 1e6


def session(bench: Bench, *words: str) -> str:
    done = bench.agent.cli("session", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def costs(bench: Bench) -> dict[str, Any]:
    """Measure the pods now, and return what each session has used."""
    found = json.loads(session(bench, "usage", "-o", "json"))
    return {one["name"]: one["costs"] for one in found["sessions"]}


def test_a_session_pays_for_the_cpu_and_memory_of_its_pod_while_it_is_open(bench: Bench) -> None:
    bench.put("game", BUSY)
    pod = bench.ready("game")
    until(lambda: cpu_seconds(bench, pod) > 0.2, "CPU time before the session")
    before = cpu_seconds(bench, pod)
    session(bench, "open", f"game-{bench.agent.node_name}", "--name", "s1")
    first, at_first = costs(bench)["s1"], cpu_seconds(bench, pod)
    until(lambda: cpu_seconds(bench, pod) > at_first + 0.5, "CPU time in the session")
    at_last = cpu_seconds(bench, pod)
    session(bench, "close", "s1")
    used = costs(bench)["s1"]
    after = cpu_seconds(bench, pod)
    assert 0.5 * (at_last - at_first) < used["cpuSeconds"] < after - before
    assert used["cpuSeconds"] > first["cpuSeconds"]
    working_set = used["memoryByteSeconds"] / used["openSeconds"]
    assert 64 << 10 < working_set < 64 << 20
    until(lambda: cpu_seconds(bench, pod) > after + 0.2, "CPU time after the session")
    assert costs(bench)["s1"] == used
