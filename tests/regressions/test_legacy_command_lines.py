"""Whole command lines of older kubelets start the agent, or are refused with the reason."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from kubeletx.agent.config.endpoints import read_endpoints
from kubeletx.agent.config.tree import AgentConfig
from kubeletx.cli.main import cli
from kubeletx.plugins.loading import load_plugins

SOCKET = "unix:///run/containerd/containerd.sock"
CONFIG_1_20 = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
"""/var/lib/kubelet/config.yaml as kubeadm v1.20 writes it."""

KUBEADM = (
    "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
)


class Line(NamedTuple):
    """One command line. `warned`: the flags without effect; `refused`: the flags that keep the agent from starting."""

    name: str
    text: str
    warned: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    needs_config: bool = False


LINES = (
    Line(
        "kubeadm 1.20 with containerd",
        f"{KUBEADM} --config=CONFIG --cgroup-driver=systemd --network-plugin=cni --container-runtime=remote"
        " --container-runtime-endpoint=/run/containerd/containerd.sock"
        " --pod-infra-container-image=k8s.example.com/pause:3.2",
        ("--network-plugin", "--container-runtime", "--pod-infra-container-image"),
    ),
    Line(
        "kubeadm 1.22 with containerd and the directories of CNI",
        f"{KUBEADM} --config=CONFIG --network-plugin=cni --cni-bin-dir=/opt/cni/bin --cni-conf-dir=/etc/cni/net.d"
        f" --cni-cache-dir=/var/lib/cni/cache --container-runtime remote --container-runtime-endpoint {SOCKET}"
        " --pod-infra-container-image k8s.example.com/pause:3.5",
        ("--network-plugin", "--container-runtime", "--pod-infra-container-image"),
    ),
    Line(
        "kubeadm 1.24",
        f"{KUBEADM} --config=CONFIG --container-runtime=remote --container-runtime-endpoint={SOCKET}"
        " --pod-infra-container-image=k8s.example.com/pause:3.7 --hostname-override=worker-1"
        " --register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule",
        ("--container-runtime", "--pod-infra-container-image"),
    ),
    Line(
        "kubeadm 1.26",
        f"{KUBEADM} --config=CONFIG --container-runtime-endpoint={SOCKET}"
        " --pod-infra-container-image=k8s.example.com/pause:3.9",
        ("--pod-infra-container-image",),
    ),
    Line(
        "Arktos, several runtimes",
        "--container-runtime=remote"
        f" --container-runtime-endpoint=container:containerd:{SOCKET};vm:libvirt:qemu:///system"
        " --allow-privileged=true --fail-swap-on=false --logtostderr=true --v=3",
        ("--container-runtime",),
    ),
    Line(
        "flags only, as scripts of 1.15 to 1.23 had them",
        "--allow-privileged --address=0.0.0.0 --anonymous-auth=false --authentication-token-webhook"
        " --authorization-mode=Webhook --cgroup-root=/ --client-ca-file=/srv/kubernetes/ca.crt --cloud-provider= "
        " --cloud-config= --cluster-dns=100.64.0.10 --cluster-domain=cluster.local"
        f" --container-runtime=remote --container-runtime-endpoint={SOCKET}"
        " --enable-debugging-handlers=true --eviction-hard=memory.available<100Mi,nodefs.available<10%"
        " --feature-gates=RotateKubeletServerCertificate=true --hostname-override=node-1"
        " --image-pull-progress-deadline=2m0s --kube-reserved=cpu=100m,memory=100Mi"
        " --kubeconfig=/var/lib/kubelet/kubeconfig --network-plugin=cni --network-plugin-mtu=9001"
        " --node-labels=example.com/pool=a --non-masquerade-cidr=100.64.0.0/10"
        " --pod-infra-container-image=k8s.example.com/pause:3.1 --pod-manifest-path=/etc/kubernetes/manifests"
        " --read-only-port=0 --register-node --register-schedulable=true --resolv-conf=/etc/resolv.conf"
        " --runtime-cgroups=/system.slice/containerd.service --runtime-request-timeout=15m"
        " --serialize-image-pulls=false --streaming-connection-idle-timeout=4h0m0s --v=2"
        " --volume-plugin-dir=/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"
        " --logtostderr=true --alsologtostderr=false --stderrthreshold=2 --log-dir=/var/log/kubernetes"
        " --docker-root=/var/lib/docker --experimental-kernel-memcg-notification=true",
        (
            "--feature-gates",
            "--container-runtime",
            "--image-pull-progress-deadline",
            "--network-plugin",
            "--network-plugin-mtu",
            "--non-masquerade-cidr",
            "--pod-infra-container-image",
            "--runtime-cgroups",
            "--log-dir",
            "--experimental-kernel-memcg-notification",
        ),
    ),
    Line(
        "the log of klog",
        f"--container-runtime-endpoint={SOCKET} --logtostderr=false --log-file=/var/log/kubelet.log"
        " --log-file-max-size=100 --one-output --skip-headers --skip-log-headers --add-dir-header"
        " --log-backtrace-at=server.go:1 --experimental-logging-sanitization",
        (
            "--logtostderr",
            "--log-file",
            "--log-file-max-size",
            "--one-output",
            "--skip-headers",
            "--skip-log-headers",
            "--add-dir-header",
            "--log-backtrace-at",
            "--experimental-logging-sanitization",
        ),
    ),
    Line(
        "dockershim",
        f"{KUBEADM} --config=CONFIG --container-runtime=docker --network-plugin=kubenet"
        " --docker-endpoint=unix:///var/run/docker.sock --docker-tls",
        refused=("--container-runtime", "--network-plugin"),
    ),
    Line(
        "a cloud inside the kubelet, and configuration from the API server",
        f"{KUBEADM} --container-runtime=remote --container-runtime-endpoint={SOCKET} --cloud-provider=aws"
        " --cloud-config=/etc/kubernetes/cloud.conf --dynamic-config-dir=/var/lib/kubelet/dynamic-config"
        " --azure-container-registry-config=/etc/kubernetes/azure.json",
        refused=("--cloud-provider", "--cloud-config", "--dynamic-config-dir", "--azure-container-registry-config"),
    ),
    Line(
        "limits that would not hold",
        f"--container-runtime-endpoint={SOCKET} --allow-privileged=false --host-network-sources=file"
        " --host-pid-sources=* --cpu-manager-policy=static --seccomp-profile-root=/srv/seccomp"
        " --keep-terminated-pod-volumes --master-service-namespace=infra",
        refused=(
            "--allow-privileged",
            "--host-network-sources",
            "--cpu-manager-policy",
            "--seccomp-profile-root",
            "--keep-terminated-pod-volumes",
            "--master-service-namespace",
        ),
    ),
)  # fmt: skip


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentConfig]:
    """Configurations with which an agent would have been run."""
    found: list[AgentConfig] = []
    module = ModuleType("kubeletx.agent.main")

    async def run_agent(config: AgentConfig, *, on_signals: Callable[[], None]) -> int:
        found.append(config)
        return 0

    module.run_agent = run_agent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kubeletx.agent.main", module)
    logs = ModuleType("kubeletx.agent.host.logging")
    logs.set_up_logging = lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kubeletx.agent.host.logging", logs)
    return found


@pytest.fixture(autouse=True)
def has_no_fork_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the command line sets for its process, so that no test changes the environment."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "false")


def run(line: str, tmp_path: Path) -> tuple[int, str]:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG_1_20)
    arguments = ["--as-kubelet", *shlex.split(line.replace("CONFIG", str(config)))]
    result = CliRunner().invoke(cli, arguments, prog_name="kubeletx")
    return result.exit_code, result.stderr


def flags_of(line: str) -> set[str]:
    return {word.partition("=")[0] for word in shlex.split(line) if word.startswith("--")}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_each_flag_of_a_legacy_command_line_is_carried_out_or_warned_of_or_refused(
    line: Line, started: list[AgentConfig], tmp_path: Path
) -> None:
    code, err = run(line.text, tmp_path)
    assert {*line.warned, *line.refused} <= flags_of(line.text)
    if line.refused:
        assert (code, started) == (2, [])
        lines = err.splitlines()
        assert sorted(one.split(": ")[1] for one in lines) == sorted(line.refused)
        assert all("; " in one for one in lines), "each says what to do"
        return
    assert (code, err) == (0, "")
    (config,) = started
    assert {one.name for one in config.unused} == set(line.warned)
    assert all(one.consequence and one.origin == f"flag {one.name}" for one in config.unused)


def test_a_legacy_command_line_names_its_runtime(started: list[AgentConfig], tmp_path: Path) -> None:
    run(LINES[0].text, tmp_path)
    (endpoint,) = read_endpoints(started[0], load_plugins().kinds)
    assert (endpoint.workload_type, endpoint.url) == ("container", SOCKET)
    assert started[0].cgroups.driver == "systemd"
    assert started[0].sources.pod_manifest_path == Path("/etc/kubernetes/manifests")


def test_the_runtimes_of_the_design_document_are_named_beside_remote(
    started: list[AgentConfig], tmp_path: Path
) -> None:
    run(LINES[4].text, tmp_path)
    endpoints = read_endpoints(started[0], load_plugins().kinds)
    assert [(one.workload_type, str(one.name)) for one in endpoints] == [
        ("container", "containerd"),
        ("vm", "libvirt"),
    ]


@pytest.mark.parametrize("value", ["docker", "rkt", "Remote", "remote "])
def test_another_container_runtime_than_remote_is_refused_with_the_reason(
    value: str, started: list[AgentConfig], tmp_path: Path
) -> None:
    assert run(f"--max-pods=3 --container-runtime={shlex.quote(value)}", tmp_path) == (
        2,
        f"Error: --container-runtime: '{value}' is not supported; kubeletx has remote runtimes only; "
        "write remote, and name them with --container-runtime-endpoint\n",
    )
    assert not started


def test_empty_flags_of_older_kubelets_ask_for_nothing(started: list[AgentConfig], tmp_path: Path) -> None:
    line = "--container-runtime= --network-plugin= --pod-infra-container-image= --cloud-config= --dynamic-config-dir="
    assert run(line, tmp_path) == (0, "")
    assert started[0].unused == ()
