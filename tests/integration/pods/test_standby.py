"""Pods that stand by: frozen and woken by command, through a whole agent with plugins/quark, containerd and runc."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, PrivateContainerd, is_ready, pod_manifest, put_manifest
from kubeletx_testing.lab.cgroups import list_container_cgroups, list_container_processes
from tests.integration.support.bench import Bench, until
from tests.integration.support.silent_files import SilentFileSystem

STUBBORN = ("sh", "-c", "trap '' TERM; while :; do echo tick; sleep 0.05; done")
CONFIG_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture(scope="module")
def shared(make_bench: Callable[..., Bench], lab: Lab) -> Bench:
    """An agent with runtimes ``quark``, a handler of containerd-a, and ``plain``, another handler of it."""
    endpoint = lab["containerd-a"].endpoint
    return make_bench(
        endpoints=f"container:plain:{endpoint}?handler=runc-two&plugin=containerd;"
        f"container:quark:{endpoint}?handler=runc"
    )


@pytest.fixture
def manifests(shared: Bench) -> Iterator[Path]:
    """The manifests of `shared`; afterwards it has no pods."""
    yield shared.manifests
    for path in shared.manifests.iterdir():
        path.unlink()
    until(lambda: not shared.agent.pods(), "no pods")


@pytest.fixture
def agent(shared: Bench, manifests: Path) -> PrivateAgent:
    return shared.agent


def container_id(pod: Pod) -> str:
    return (pod.status.container_statuses[0].container_id or "").rpartition("/")[2]


def ticks(agent: PrivateAgent, name: str) -> int:
    return agent.cli("logs", f"{name}-lab").stdout.count("tick")


def state(agent: PrivateAgent, name: str) -> str:
    """The kernel's word about the pod's container: FROZEN or THAWED."""
    pod = agent.pod(name)
    assert pod is not None
    directory = freezer_directory(pod)
    if (directory / "freezer.state").exists():
        return (directory / "freezer.state").read_text().strip()
    return "FROZEN" if "frozen 1" in (directory / "cgroup.events").read_text() else "THAWED"


def freezer_directory(pod: Pod) -> Path:
    """The cgroup of the pod's container, in the hierarchy whose freezer is used."""
    directories = list_container_cgroups({container_id(pod)})
    version_1 = [one for one in directories if (one / "freezer.state").exists()]
    return (version_1 or [one for one in directories if (one / "cgroup.freeze").exists()])[0]


def shown(agent: PrivateAgent, name: str) -> str:
    """The column STATUS of ``kubeletx get pods``."""
    lines = agent.cli("get", "pods").stdout.splitlines()
    return next(line.split()[2] for line in lines if line.startswith(f"{name}-lab"))


def command(agent: PrivateAgent, *arguments: str) -> str:
    answer = agent.cli("pod", *arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def started(agent: PrivateAgent, manifests: Path, name: str, runtime: str = "quark") -> Pod:
    put_manifest(manifests, pod_manifest(name, runtime=runtime, command=STUBBORN))
    return agent.wait_for(name)


def wait_ticks(agent: PrivateAgent, name: str, above: int) -> None:
    deadline = time.monotonic() + 120
    while ticks(agent, name) <= above:
        assert time.monotonic() < deadline, f"{name} does not tick"


def gone(pod: Pod) -> bool:
    ids = {container_id(pod)}
    return not list_container_processes(ids) and not list_container_cgroups(ids)


@pytest.mark.parametrize(("flags", "word"), [((), "standby"), (("--hibernate",), "hibernated")])
def test_a_pod_is_frozen_shown_so_and_woken(
    agent: PrivateAgent, manifests: Path, flags: tuple[str, ...], word: str
) -> None:
    before = started(agent, manifests, "web")
    wait_ticks(agent, "web", 0)
    assert command(agent, "standby", "web-lab", *flags) == f"pod/web-lab {word}\n"
    assert state(agent, "web") == "FROZEN"
    assert shown(agent, "web") == word.capitalize()
    resting = agent.wait_for("web", lambda pod: not is_ready(pod))
    assert resting.status.phase == "Running"
    count = ticks(agent, "web")
    assert ticks(agent, "web") == count
    assert command(agent, "activate", "web-lab") == "pod/web-lab running\n"
    assert state(agent, "web") == "THAWED"
    wait_ticks(agent, "web", count)
    after = agent.wait_for("web")
    assert shown(agent, "web") == "Running"
    assert container_id(after) == container_id(before)
    assert after.status.container_statuses[0].restart_count == 0


@pytest.mark.parametrize(("flags", "word"), [((), "Standby"), (("--hibernate",), "Hibernated")])
def test_a_restarted_agent_finds_a_frozen_pod_frozen(
    agent: PrivateAgent, manifests: Path, flags: tuple[str, ...], word: str
) -> None:
    before = started(agent, manifests, "web")
    command(agent, "standby", "web-lab", *flags)
    agent.kill()
    agent.start()
    agent.wait_for("web", lambda pod: shown(agent, "web") == word)
    assert state(agent, "web") == "FROZEN"
    command(agent, "activate", "web-lab")
    after = agent.wait_for("web")
    assert container_id(after) == container_id(before)
    assert after.status.container_statuses[0].restart_count == 0


def test_a_restart_of_containerd_changes_nothing(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    before = started(agent, manifests, "web")
    command(agent, "standby", "web-lab")
    containerd_a.restart()
    command(agent, "activate", "web-lab", "--timeout", "60s")
    command(agent, "standby", "web-lab")
    assert state(agent, "web") == "FROZEN"
    assert container_id(agent.pod("web") or before) == container_id(before)


def test_a_pod_is_woken_while_containerd_is_stopped_and_no_freeze_is_shown_that_was_not_made(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    started(agent, manifests, "web")
    command(agent, "standby", "web-lab")
    containerd_a.stop_daemon()
    try:
        assert command(agent, "activate", "web-lab") == "pod/web-lab running\n"
        assert state(agent, "web") == "THAWED"
        answer = agent.cli("pod", "standby", "web-lab", "--timeout", "2s")
        assert answer.returncode != 0, answer.stdout
        assert state(agent, "web") == "THAWED"
    finally:
        containerd_a.start_daemon()
    agent.wait_for("web", lambda pod: shown(agent, "web") == "Standby")
    assert state(agent, "web") == "FROZEN"


def test_a_frozen_pod_whose_manifest_is_removed_leaves_nothing(agent: PrivateAgent, manifests: Path) -> None:
    pod = started(agent, manifests, "web")
    command(agent, "standby", "web-lab")
    (manifests / "web.json").unlink()
    agent.wait_gone("web")
    assert gone(pod)


@pytest.mark.parametrize("flags", [(), ("--force", "--grace-period=0")])
@pytest.mark.parametrize("standby", [(), ("--hibernate",)])
def test_a_frozen_pod_is_deleted_and_leaves_nothing(
    agent: PrivateAgent, tmp_path: Path, flags: tuple[str, ...], standby: tuple[str, ...]
) -> None:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod_manifest("web", runtime="quark", command=STUBBORN)))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    pod = agent.wait_for("web")
    command(agent, "standby", "web", *standby)
    assert state(agent, "web") == "FROZEN"
    answer = agent.cli("delete", "pod", "web", *flags)
    assert answer.returncode == 0, answer.stderr
    agent.wait_gone("web")
    assert gone(pod)
    assert not list((agent.root_dir / "runtimes" / "quark").rglob("hibernated/*"))


def test_a_pod_frozen_by_another_program_is_removed_too(agent: PrivateAgent, manifests: Path) -> None:
    pod = started(agent, manifests, "web")
    directory = freezer_directory(pod)
    if (directory / "freezer.state").exists():
        (directory / "freezer.state").write_text("FROZEN")
    else:
        (directory / "cgroup.freeze").write_text("1")
    (manifests / "web.json").unlink()
    agent.wait_gone("web")
    assert gone(pod)


def test_a_container_that_cannot_be_frozen_runs_on_and_is_frozen_later(
    agent: PrivateAgent, manifests: Path, tmp_path: Path
) -> None:
    before = started(agent, manifests, "web")
    directory = freezer_directory(before)
    with SilentFileSystem(tmp_path / "silent") as files:
        (directory / "cgroup.procs").write_text(str(files.reader.pid))
        answer = agent.cli("pod", "standby", "web-lab")
        assert answer.returncode == 1
        expected = f"runs again: thread {files.reader.pid} (cat) is in uninterruptible sleep (state D)"
        assert expected in answer.stderr
        wait_ticks(agent, "web", ticks(agent, "web"))
        assert shown(agent, "web") == "Running"
        files.end()
        agent.wait_for("web", lambda _pod: shown(agent, "web") == "Standby")
        assert state(agent, "web") == "FROZEN"
        command(agent, "activate", "web-lab")
    assert container_id(agent.wait_for("web")) == container_id(before)


def test_a_runtime_that_cannot_freeze_says_so(agent: PrivateAgent, manifests: Path, lab: Lab) -> None:
    started(agent, manifests, "web", runtime="plain")
    answer = agent.cli("pod", "standby", "web-lab")
    assert answer.returncode == 1
    assert "runtime plain of pod default/web-lab cannot freeze containers" in answer.stderr
    assert state(agent, "web") == "THAWED"


def test_annotations_of_the_pod_reach_the_oci_runtime_if_the_handler_lists_them(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    """A runtime such as Quark reads its settings there, for example a threshold of memory."""
    annotations = {"example.com/oci-memory-threshold": "64Mi", "example.com/other": "kept"}
    put_manifest(manifests, pod_manifest("web", runtime="quark", metadata={"annotations": annotations}))
    pod = agent.wait_for("web")
    with containerd_a.cri() as calls:
        answer = calls.call("ContainerStatus", container_id=container_id(pod), verbose=True)
    oci = json.loads(answer.info["info"])["runtimeSpec"]["annotations"]
    assert oci["example.com/oci-memory-threshold"] == "64Mi"
    assert "example.com/other" not in oci


def test_a_command_thaws_a_frozen_pod_while_it_lasts(agent: PrivateAgent, manifests: Path) -> None:
    started(agent, manifests, "web")
    command(agent, "standby", "web-lab")
    answer = agent.cli("exec", "web-lab", "--", "echo", "hello")
    assert (answer.returncode, answer.stdout) == (0, "hello\n"), answer.stderr
    agent.wait_for("web", lambda pod: shown(agent, "web") == "Standby")
    assert state(agent, "web") == "FROZEN"
    agent.cli("logs", "web-lab")
    agent.cli("describe", "pod", "web-lab")
    assert state(agent, "web") == "FROZEN"


def test_a_frozen_pod_is_left_frozen_if_the_settings_say_so(
    make_agent: Callable[..., PrivateAgent],
    containerd_a: PrivateContainerd,
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    config = tmp_path / "config.yaml"
    config.write_text(f"{CONFIG_HEAD}kubeletx:\n  standbyStreams: refuse\n")
    agent = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc",
        flags=("--config", str(config)),
        manifest_dir=own,
    )
    agent.start()
    started(agent, own, "web")
    command(agent, "standby", "web-lab")
    answer = agent.cli("exec", "web-lab", "--", "echo", "hello")
    assert answer.returncode != 0
    assert "pod default/web-lab is standby; wake it with 'kubeletx pod activate'" in answer.stderr
    assert state(agent, "web") == "FROZEN"


def test_a_pod_with_the_annotation_rests_and_an_activation_outlives_the_agent(
    agent: PrivateAgent, manifests: Path
) -> None:
    metadata = {"annotations": {"kubeletx.io/standby": "hibernated"}}
    put_manifest(manifests, pod_manifest("web", runtime="quark", command=STUBBORN, metadata=metadata))
    agent.wait_for("web", lambda pod: shown(agent, "web") == "Hibernated")
    assert state(agent, "web") == "FROZEN"
    command(agent, "activate", "web-lab")
    before = agent.wait_for("web")
    agent.kill()
    agent.start()
    after = agent.wait_for("web")
    assert state(agent, "web") == "THAWED"
    assert container_id(after) == container_id(before)
    command(agent, "standby", "web-lab")
    assert state(agent, "web") == "FROZEN"


def test_a_pod_with_the_annotation_waits_on_a_runtime_that_cannot_freeze(
    agent: PrivateAgent, manifests: Path
) -> None:
    metadata = {"annotations": {"kubeletx.io/standby": "standby"}}
    put_manifest(manifests, pod_manifest("web", runtime="plain", command=STUBBORN, metadata=metadata))
    pod = agent.wait_for("web", lambda pod: pod.status.reason == "RuntimeUnsupported")
    assert pod.status.phase == "Pending"
    assert "cannot do what the pod needs: standby" in (pod.status.message or "")


def test_a_hibernated_pod_shows_its_memory_before_and_after(agent: PrivateAgent, manifests: Path) -> None:
    started(agent, manifests, "web")
    command(agent, "standby", "web-lab", "--hibernate")
    text = agent.cli("describe", "pod", "web-lab").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("Standby:")]
    found = re.search(
        r"Hibernated since .* \(hibernated in [\d.]+s; memory: ([\d.]+) MiB before, ([\d.]+) MiB after\)",
        line,
    )
    assert found is not None, line
    assert float(found[1]) >= float(found[2])
    assert "Hibernated container main in " in text
    assert state(agent, "web") == "FROZEN"
