"""The command line against an agent on real containerds: what a newcomer types, and what comes back."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import (
    PrivateAgent,
    bound_runtime,
    image_ref,
    is_ready,
    make_image,
    pod_manifest,
    put_manifest,
)
from tests.integration.support.bench import Bench
from tests.integration.support.survival import until


def run(agent: PrivateAgent, *arguments: str, code: int = 0) -> str:
    done = agent.cli(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def cells(line: str) -> list[str]:
    return line.split()


def popen(agent: PrivateAgent, *arguments: str) -> subprocess.Popen[str]:
    program = agent.argv()[0]
    return subprocess.Popen(
        [program, f"--root-dir={agent.root_dir}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def shared(bench: Bench) -> Iterator[PrivateAgent]:
    """The agent of this file, which has no pods afterwards."""
    yield bench.agent
    for pod in bench.agent.pods():
        run(bench.agent, "delete", "pod", pod.name, "--force", "--grace-period=0")


@pytest.fixture
def applied(shared: PrivateAgent, tmp_path: Path) -> PrivateAgent:
    """`shared` with one applied pod ``web`` on the second containerd."""
    manifest = pod_manifest("web", runtime="containerd-b", image="web", command=None)
    path = put_manifest(tmp_path, manifest)
    assert run(shared, "apply", "-f", str(path)) == "pod/web created\n"
    wait_ready(shared, "web")
    return shared


def wait_ready(agent: PrivateAgent, name: str) -> None:
    """Watch, as a script would."""
    with popen(agent, "get", "pod", name, "-w", "-o", "wide", "--no-headers") as watch:
        assert watch.stdout is not None
        assert any(cells(line)[1:3] == ["1/1", "Running"] for line in watch.stdout), (
            f"the watch of {name} ended"
        )
        watch.terminate()


def test_a_pod_is_applied_seen_changed_and_deleted(applied: PrivateAgent, tmp_path: Path) -> None:
    table = run(applied, "get", "pods").splitlines()
    assert cells(table[0]) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "RUNTIME"]
    assert cells(table[1])[:4] + cells(table[1])[-1:] == ["web", "1/1", "Running", "0", "containerd-b"]
    listed = json.loads(run(applied, "get", "pods", "-o", "json"))
    assert listed["items"][0]["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "containerd-b"
    text = run(applied, "describe", "pod", "web")
    assert "Started" in text
    assert "containerd-b" in text
    manifest = pod_manifest("web", runtime="containerd-a", image="web", command=None)
    path = put_manifest(tmp_path, manifest)
    assert "replace --force" in run(applied, "apply", "-f", str(path), code=1)
    assert run(applied, "replace", "--force", "-f", str(path)) == "pod/web replaced\n"
    moved = next(p for p in applied.pods() if p.metadata.deletion_timestamp is None)
    assert moved.name == "web"
    assert run(applied, "delete", "pod", "web", "--timeout", "60s").startswith('pod "web" deleted')
    assert applied.pods() == ()


def test_commands_run_with_their_streams_and_exit_codes(applied: PrivateAgent) -> None:
    assert run(applied, "exec", "web", "--", "echo", "-n", "hello") == "hello"
    assert "exit code 3" in run(applied, "exec", "web", "--", "sh", "-c", "exit 3", code=3)
    process = popen(applied, "exec", "-i", "web", "--", "sh", "-c", "cat; echo error >&2")
    out, err = process.communicate("line\n" * 20_000, timeout=60)
    assert (process.returncode, out, err) == (0, "line\n" * 20_000, "error\n")
    missing = run(applied, "exec", "web", "-c", "none", "--", "true", code=1)
    assert "none" in missing


def test_logs_are_shown_followed_and_cut(shared: PrivateAgent, tmp_path: Path) -> None:
    script = "for i in 1 2 3; do echo line $i; done; echo bad >&2; sleep 3600"
    put_manifest(tmp_path, pod_manifest("talker", command=("sh", "-c", script)), name="talker.json")
    run(shared, "apply", "-f", str(tmp_path / "talker.json"))
    wait_ready(shared, "talker")
    until(lambda: run(shared, "logs", "talker").count("\n") == 4, "four lines")
    assert sorted(run(shared, "logs", "talker").splitlines()) == ["bad", "line 1", "line 2", "line 3"]
    assert run(shared, "logs", "talker", "--tail", "1").count("\n") == 1
    assert run(shared, "logs", "talker", "--timestamps").startswith("20")
    (name,) = {
        line.split()[0] for line in run(shared, "logs", "talker", "--all-containers", "--prefix").splitlines()
    }
    assert name.startswith("[pod/talker/")
    with popen(shared, "logs", "-f", "talker") as follower:
        assert follower.stdout is not None
        try:
            first = {follower.stdout.readline() for _ in range(4)}
            assert first == {"line 1\n", "line 2\n", "line 3\n", "bad\n"}
            run(shared, "exec", "talker", "--", "sh", "-c", "echo from outside > /proc/1/fd/1")
            assert follower.stdout.readline() == "from outside\n"
        finally:
            follower.terminate()


def test_a_port_leads_into_the_pod(applied: PrivateAgent) -> None:
    with popen(applied, "port-forward", "web", ":8080") as forward:
        assert forward.stdout is not None
        try:
            line = forward.stdout.readline()
            port = int(line.split(":")[1].split()[0])
            listens = "until wget -qO- http://localhost:8080/healthz; do usleep 50000; done"
            assert run(applied, "exec", "web", "--", "sh", "-c", listens) == "ok\n"
            for _ in range(3):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as answer:
                    assert answer.read() == b"ok\n"
        finally:
            forward.terminate()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_images_are_pulled_listed_for_their_store_and_removed(shared: PrivateAgent) -> None:
    own = make_image("only-here", tag="1")
    shared.lab.registry.push([own])
    image = image_ref("only-here")
    assert run(shared, "image", "pull", image, "--runtime", "containerd-b").startswith(
        f"{image} pulled into containerd-b"
    )
    rows = [cells(row) for row in run(shared, "get", "images").splitlines()[1:]]
    assert [row[4] for row in rows if row[:2] == image.rsplit(":", 1)] == ["containerd-b"]
    assert run(shared, "image", "rm", image, "--runtime", "containerd-b").startswith(f"Deleted: {image} (")
    rows = [cells(row) for row in run(shared, "get", "images").splitlines()[1:]]
    assert [row for row in rows if row[:2] == image.rsplit(":", 1)] == []
    assert "not found" in run(shared, "image", "pull", image_ref("no-such-image"), code=1)


def test_runtimes_are_shown_described_and_cordoned(agent: PrivateAgent, manifests: Path) -> None:
    until(lambda: all(one.status == "Ready" for one in agent.runtimes()), "all runtimes ready")
    table = [cells(row) for row in run(agent, "get", "runtimes").splitlines()]
    assert table[0] == ["NAME", "TYPE", "KIND", "STATUS", "VERSION", "PODS", "DEFAULT", "SINCE", "ENDPOINT"]
    assert [row[:4] for row in table[1:]] == [
        [name, "container", "containerd", "Ready"] for name in ("containerd-a", "containerd-b")
    ]
    assert "Exec:" in run(agent, "runtime", "describe", "containerd-a")
    run(agent, "runtime", "cordon", "containerd-a")
    put_manifest(manifests, pod_manifest("plain"))
    assert bound_runtime(agent.wait_for("plain")) == "containerd-b"
    assert "--drain" in run(agent, "runtime", "remove", "containerd-b", code=1)
    run(agent, "runtime", "uncordon", "containerd-a")
    steps = run(agent, "runtime", "remove", "containerd-b", "--drain").splitlines()
    assert steps == [
        "runtime containerd-b cordoned",
        "pod default/plain-lab ended",
        "runtime containerd-b removed",
    ]
    assert (
        bound_runtime(agent.wait_for("plain", lambda pod: bound_runtime(pod) == "containerd-a"))
        == "containerd-a"
    )


def test_usage_names_every_runtime(applied: PrivateAgent) -> None:
    assert {cells(row)[0] for row in run(applied, "top", "runtimes").splitlines()[1:]} == {
        "containerd-a",
        "containerd-b",
    }
    node = cells(run(applied, "top", "node").splitlines()[1])
    assert node[0] == "lab"


def test_every_resource_has_a_table(applied: PrivateAgent) -> None:
    for kind in ("pods", "runtimes", "node", "images", "events"):
        assert len(run(applied, "get", kind).splitlines()) >= 2
    assert run(applied, "get", "node").splitlines()[1].split()[1] == "Ready"
    assert "containerd" in run(applied, "plugins")
    assert "--container-runtime-endpoint" in run(applied, "config", "view", "--changed")
    assert is_ready(applied.wait_for("web"))


def test_verbs_of_kubectl_work_on_a_real_pod(applied: PrivateAgent, tmp_path: Path) -> None:
    assert run(applied, "wait", "pod/web", "--for=condition=Ready", "--timeout=60s") == (
        "pod/web condition met\n"
    )
    manifest = pod_manifest("web", runtime="containerd-b", image="web", command=None)
    path = put_manifest(tmp_path, manifest)
    assert run(applied, "diff", "-f", str(path)) == ""
    assert run(applied, "label", "pod", "web", "tier=front") == "pod/web labeled\n"
    assert run(applied, "annotate", "pod", "web", "note=x y") == "pod/web annotated\n"
    assert "tier=front" in run(applied, "get", "pods", "-l", "tier=front", "--show-labels")
    assert "tier: front" in applied.cli("diff", "-f", str(path)).stdout
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/file").write_text("content\n")
    run(applied, "cp", str(tmp_path / "tree"), "web:/tmp/copy")
    run(applied, "cp", "web:/tmp/copy", str(tmp_path / "back"))
    assert (tmp_path / "back/below/file").read_text() == "content\n"
    assert run(applied, "restart", "web", "--timeout=120s") == "pod/web restarted\n"
    assert applied.pods()[0].status.container_statuses[0].restart_count == 1
    debug = popen(applied, "debug", "-i", "web", "-c", "tool", f"--image={image_ref('busybox')}", "--", "sh")
    out, err = debug.communicate("echo in $0; exit 0\n", timeout=60)
    assert (debug.returncode, out) == (0, "in sh\n"), err
    assert run(applied, "cordon") == "node cordoned\n"
    other = put_manifest(tmp_path, pod_manifest("other"), name="other.json")
    assert "use 'kubeletx uncordon' first" in run(applied, "apply", "-f", str(other), code=1)
    assert run(applied, "uncordon") == "node uncordoned\n"
