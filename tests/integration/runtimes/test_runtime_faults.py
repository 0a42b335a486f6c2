"""Runtimes that come late, lose a container or have no network; tests/integration/survive has their outages."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kubeletx_testing.lab import (
    Lab,
    PrivateAgent,
    PrivateContainerd,
    is_ready,
    pod_manifest,
    put_manifest,
)


def _wait(is_so: Callable[[], bool], *, what: str, timeout_seconds: float = 120) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} in {timeout_seconds} s"
        time.sleep(0.1)


def test_a_runtime_that_is_not_there_at_the_start_joins_by_itself(
    make_agent: Callable[..., PrivateAgent], manifests: Path, lab: Lab, containerd_b: PrivateContainerd
) -> None:
    containerd_b.stop_daemon()
    try:
        agent = make_agent()
        agent.start()
        put_manifest(manifests, pod_manifest("early", runtime="containerd-a"))
        put_manifest(manifests, pod_manifest("late", runtime="containerd-b"))
        agent.wait_for("early")
        assert agent.wait_for("late", lambda pod: pod.status.phase == "Pending")
    finally:
        containerd_b.start_daemon()
    agent.wait_for("late", timeout_seconds=60)


def test_a_container_that_ends_during_an_outage_is_seen_afterwards(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    script = "until [ -e /flag/go ]; do usleep 50000; done; exit 0"
    put_manifest(
        manifests,
        pod_manifest(
            "ends",
            runtime="containerd-a",
            command=["sh", "-c", script],
            container={"volumeMounts": [{"name": "flag", "mountPath": "/flag"}]},
            spec={
                "restartPolicy": "Never",
                "volumes": [{"name": "flag", "hostPath": {"path": str(manifests.parent)}}],
            },
        ),
    )
    agent.wait_for("ends")
    containerd_a.kill()
    (manifests.parent / "go").touch()
    containerd_a.start_daemon()
    ended = agent.wait_for("ends", lambda pod: pod.status.phase == "Succeeded", timeout_seconds=60)
    state = ended.status.container_statuses[0].state
    assert state.terminated is not None
    assert state.terminated.exit_code == 0


def test_a_pod_whose_container_another_client_deleted_from_containerd_is_replaced(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    """containerd's CRI answers NotFound for that container when the sandbox is to be removed."""
    once = pod_manifest("once", runtime="containerd-a", command=["true"], spec={"restartPolicy": "Never"})
    put_manifest(manifests, once)
    ended = agent.wait_for("once", lambda pod: pod.status.phase == "Succeeded")
    container_id = (ended.status.container_statuses[0].container_id or "").partition("://")[2]
    address = containerd_a.endpoint.removeprefix("unix://")
    remove = ["ctr", "-a", address, "-n", "k8s.io", "containers", "rm", container_id]
    subprocess.run(remove, check=True, capture_output=True, timeout=30)
    put_manifest(manifests, pod_manifest("once", runtime="containerd-a"))
    after = agent.wait_for("once", lambda pod: is_ready(pod) and pod.uid != ended.uid, timeout_seconds=30)
    with containerd_a.cri() as cri:
        _wait(
            lambda: [box.metadata.uid for box in cri.sandboxes()] == [after.uid],
            what="end of the old sandbox",
        )


def _documented_network(lab: Lab) -> str:
    """The CNI configuration of docs/install.md, with the lab's bridge, addresses and files."""
    page = (Path(__file__).parents[3] / "docs" / "install.md").read_text()
    text = page.partition("10-kubeletx.conflist <<END\n")[2].partition("END\n")[0]
    config = json.loads(text.replace("10.88.0.0/16", str(lab.network.subnet)))
    bridge, portmap = config["plugins"]
    bridge["bridge"] = lab.network.bridge
    bridge["ipam"]["dataDir"] = str(lab.base_dir / "cni" / "ipam")
    if not lab.network.has_portmap:  # no iptables on this machine
        bridge["ipMasq"] = False
    plugins = [bridge, portmap] if lab.network.has_portmap else [bridge]
    return json.dumps({**config, "name": lab.network.name, "plugins": plugins})


def test_a_pod_on_a_node_without_a_network_is_deleted_and_what_is_left_goes_later(
    make_agent: Callable[..., PrivateAgent], manifests: Path, lab: Lab, tmp_path: Path
) -> None:
    config = tmp_path / "10-net.conflist"
    config.write_text('{"cniVersion": "0.4.0", "name": "x", "plugins": [{"type": "no-such-plugin"}]}')
    containerd = lab.add_containerd("containerd-c")
    containerd.cni_conf_dir = tmp_path
    containerd.start()
    try:
        agent = make_agent(endpoints=f"container:containerd-c:{containerd.endpoint}")
        agent.start()
        path = put_manifest(manifests, pod_manifest("early", runtime="containerd-c"))
        with containerd.cri() as cri:
            _wait(lambda: bool(cri.sandboxes()), what="sandbox without a network")
            config.unlink()
            path.unlink()
            agent.wait_gone("early", timeout_seconds=30)
            assert cri.sandboxes()
            put_manifest(manifests, pod_manifest("late", runtime="containerd-c"))
            said = f"must be in {tmp_path}, see 'The pod network' in docs/install.md"
            _wait(lambda: said in agent.log_tail(200), what="directory in the log")
            (tmp_path / "10-kubeletx.conflist").write_text(_documented_network(lab))
            agent.wait_for("late")
            _wait(lambda: len(cri.sandboxes()) == 1, what="end of what was left", timeout_seconds=90)
        agent.stop()
    finally:
        with containerd.cri() as cri:
            cri.remove_all()
        containerd.stop()
        del lab.containerds["containerd-c"]
