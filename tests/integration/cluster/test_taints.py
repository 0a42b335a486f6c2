"""The taint of a workload type without a ready runtime: given at registration, and later by who may (DECISIONS 27).

Against the double and a real API server, which lets a node change no taints.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiServerDouble, Grant, write_kubeconfig
from kubeletx_testing.lab import Lab, PrivateAgent
from tests.integration.support.clusters import (
    ApiServer,
    ClusterNode,
    ready_namespace,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
KEY, KEEPER, OTHER = "workload.kubeletx.io/container", "keeper-of-taints", "example.com/mine"
RULES = "/apis/rbac.authorization.k8s.io/v1"


def keeper(api: ApiServer, directory: Path) -> Path:
    """A kubeconfig of someone who may patch nodes and nothing else, as deploy/taints.yaml has it."""
    if isinstance(api, ApiServerDouble):
        api.grant(Grant(subject=KEEPER, verbs=("patch",), resources=("nodes",)))
    else:
        rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}
        api.admin.ask("POST", f"{RULES}/clusterroles", {"metadata": {"name": KEEPER}, "rules": [rule]})
        binding = {
            "metadata": {"name": KEEPER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": KEEPER},
            "subjects": [{"kind": "User", "name": KEEPER, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        api.admin.ask("POST", f"{RULES}/clusterrolebindings", binding)
    return write_kubeconfig(directory / "keeper", api.url, api.ca_file, api.authority.client(KEEPER))


def taints(node: ClusterNode) -> dict[str, str]:
    """Effect by key; without those that the API server itself gives to a new node."""
    found: list[dict[str, Any]] = (node.node() or {}).get("spec", {}).get("taints", [])
    return {one["key"]: one["effect"] for one in found if not one["key"].startswith("node.kubernetes.io/")}


def label(node: ClusterNode) -> str | None:
    found: dict[str, str] = (node.node() or {}).get("metadata", {}).get("labels", {})
    return found.get("runtime.kubeletx.io/containerd-a")


@pytest.mark.parametrize("is_kept", [False, True], ids=["registered", "kept"])
def test_a_taint_is_given_at_registration_and_follows_readiness_where_someone_may_change_it(
    api: ApiServer, lab: Lab, make_agent: MakeAgent, tmp_path: Path, is_kept: bool
) -> None:
    containerd = lab["containerd-a"]
    name = "tainted-kept" if is_kept else "tainted-once"
    flags = [f"--kubeconfig={api.node_kubeconfig(name)}", f"--register-with-taints={OTHER}=x:NoSchedule"]
    if is_kept:
        flags.append(f"--taint-kubeconfig={keeper(api, tmp_path)}")
    ready_namespace(api.admin)
    endpoint = f"container:containerd-a:{containerd.endpoint}"
    agent = make_agent(name=name, node_name=name, manifest_dir=None, endpoints=endpoint, flags=flags)
    node = ClusterNode(api, agent)
    containerd.stop_daemon()
    try:
        agent.start()
        until(lambda: node.node() is not None, "a node")
        assert taints(node) == {OTHER: "NoSchedule", KEY: "NoSchedule"}
    finally:
        containerd.start_daemon()
    node.wait_ready()
    until(lambda: label(node) == "ready", "the label of the runtime")
    if not is_kept:
        assert taints(node) == {OTHER: "NoSchedule", KEY: "NoSchedule"}, "a node may not change them"
        assert "Failed" not in agent.log_path.read_text()
        return
    until(lambda: taints(node) == {OTHER: "NoSchedule"}, "no taint of a type that runs")
    containerd.stop_daemon()
    try:
        until(lambda: KEY in taints(node), "the taint again")
        agent.restart()
        assert KEY in taints(node)
    finally:
        containerd.start_daemon()
    until(lambda: taints(node) == {OTHER: "NoSchedule"}, "no taint once more")
