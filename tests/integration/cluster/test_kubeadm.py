"""`kubeadm join` with kubeletx as the kubelet: kubeadm's side is played, step by step, as docs/kubeadm.md says.

Sources: kubeadm v1.36, cmd/phases/join/kubelet.go, preflight/utils.go, phases/kubelet/{config,flags}.go and
util/apiclient/wait.go. The paths are below a directory of the test's own, since /var/lib/kubelet is the machine's.
"""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeletx.kube.client import load_kubeconfig
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import Lab, PrivateAgent
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.clusters import ClusterNode
from tests.integration.support.survival import until

NAME = "worker-1"
ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "systemd" / "kubelet.service"
VERSION = re.compile(r"\s*Kubernetes v((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([-\w.+]*)?)\s*")
_NUMBERS = itertools.count(1)
MakeAgent = Callable[..., PrivateAgent]


class Host:
    """The machine's paths that kubeadm knows, moved below `directory`."""

    def __init__(self, directory: Path, lab: Lab) -> None:
        self.directory = directory
        self.kubernetes = directory / "etc/kubernetes"
        self.kubelet = directory / "var/lib/kubelet"
        self.bin = directory / "usr/bin"
        self.defaults = directory / "etc/default/kubelet"
        self.bootstrap = self.kubernetes / "bootstrap-kubelet.conf"
        self.kubeconfig = self.kubernetes / "kubelet.conf"
        self.healthz_port = free_port()
        self.port = free_port()
        self.socket = lab.containerds["containerd-a"].endpoint
        for made in (self.kubernetes / "pki", self.bin, self.defaults.parent):
            made.mkdir(parents=True)

    def install(self, program: str, extra: list[str]) -> None:
        """The operator's steps: the program's name, and flags of the test's own lab."""
        (self.bin / "kubelet").symlink_to(program)
        self.defaults.write_text(f'KUBELET_EXTRA_ARGS="{" ".join(extra)}"\n')

    def join(self, api: ApiServerDouble, *, socket_in_file: bool) -> None:
        """What kubeadm writes. `socket_in_file`: kubeadm v1.36; older ones name the socket in the flags."""
        self.bootstrap.write_text(api.bootstrap_kubeconfig().read_text())
        (self.kubernetes / "pki/ca.crt").write_text(api.ca_file.read_text())
        config = kubeadm_config(self)
        flags = [
            f"--hostname-override={NAME}",
            "--register-with-taints=example.com/joined=yes:PreferNoSchedule",
        ]
        if socket_in_file:
            config["containerRuntimeEndpoint"] = self.socket
        else:
            flags += [
                f"--container-runtime-endpoint={self.socket}",
                "--pod-infra-container-image=example.com/pause:3.10",
            ]
        self.kubelet.mkdir(parents=True, exist_ok=True)
        (self.kubelet / "config.yaml").write_text(yaml.safe_dump(config))
        (self.kubelet / "kubeadm-flags.env").write_text(f'KUBELET_KUBEADM_ARGS="{" ".join(flags)}"\n')

    def argv(self) -> list[str]:
        """What systemd makes of the unit of this repository."""
        text = UNIT.read_text()
        variables: dict[str, str] = {}
        for line in re.findall(r'^Environment="(.*)"$', text, re.MULTILINE):
            name, _, value = line.partition("=")
            variables[name] = value
        for path in re.findall(r"^EnvironmentFile=-(.*)$", text, re.MULTILINE):
            file = self.directory / path.lstrip("/")
            for name, value in re.findall(r'^(\w+)="(.*)"$', file.read_text(), re.MULTILINE):
                variables[name] = value
        (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        words = []
        for word in command.split():
            words += shlex.split(variables[word[1:]]) if word.startswith("$") else [word]
        moved = ("/etc/kubernetes", "/var/lib/kubelet", "/usr/bin/kubelet")
        return [
            re.sub(rf"(^|=)({'|'.join(moved)})(?=/|$)", rf"\g<1>{self.directory}\g<2>", word)
            for word in words
        ]


def kubeadm_config(host: Host) -> dict[str, Any]:
    """The KubeletConfiguration of `kubeadm init` with its zero values; ports and cgroup driver are patched."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"cacheTTL": "0s", "enabled": True},
            "x509": {"clientCAFile": str(host.kubernetes / "pki/ca.crt")},
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s"},
        },
        "cgroupDriver": "cgroupfs",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "",
        "cpuManagerReconcilePeriod": "0s",
        "crashLoopBackOff": {},
        "evictionPressureTransitionPeriod": "0s",
        "fileCheckFrequency": "0s",
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": host.healthz_port,
        "httpCheckFrequency": "0s",
        "imageMaximumGCAge": "0s",
        "imageMinimumGCAge": "0s",
        "logging": {
            "flushFrequency": 0,
            "options": {"json": {"infoBufferSize": "0"}, "text": {"infoBufferSize": "0"}},
            "verbosity": 0,
        },
        "memorySwap": {},
        "nodeStatusReportFrequency": "0s",
        "nodeStatusUpdateFrequency": "0s",
        "port": host.port,
        "rotateCertificates": True,
        "runtimeRequestTimeout": "0s",
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
        "staticPodPath": str(host.kubernetes / "manifests"),
        "streamingConnectionIdleTimeout": "0s",
        "syncFrequency": "0s",
        "volumeStatsAggPeriod": "0s",
    }


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A cluster that approves requests of nodes, as a controller manager does."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double


@pytest.fixture
def host(lab: Lab) -> Host:
    """A machine without a kubelet."""
    return Host(lab.base_dir / f"host-{next(_NUMBERS)}", lab)


@pytest.fixture
def kubelet(host: Host, make_agent: MakeAgent) -> PrivateAgent:
    """The program installed there by its name, not joined. Its command line is the unit's."""
    agent = make_agent(name=host.directory.name, node_name=NAME)
    program, *words = agent.argv()
    of_the_lab = ("--pod-logs-dir", "--cni-", "--cgroup-root", "--eviction-hard")
    root = f"--root-dir={host.kubelet}"
    host.install(program, [root, *(word for word in words if word.startswith(of_the_lab))])
    agent.root_dir = host.kubelet
    agent.argv = host.argv  # type: ignore[method-assign]
    return agent


def healthz(host: Host) -> int:
    """The status that kubeadm waits for; 0: nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{host.healthz_port}/healthz", timeout=5) as answer:
            return int(answer.status)
    except OSError:
        return 0


@pytest.mark.parametrize("socket_in_file", [True, False], ids=["kubeadm-1.36", "older-kubeadm"])
def test_kubeadm_join_step_by_step(
    api: ApiServerDouble, host: Host, kubelet: PrivateAgent, lab: Lab, socket_in_file: bool
) -> None:
    program = str(host.bin / "kubelet")

    # preflight: the version, and a service that cannot run before it is configured
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert VERSION.fullmatch(version.stdout)
    early = subprocess.run(
        [program, f"--config={host.kubelet}/config.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (early.returncode, "config.yaml: cannot be read" in early.stderr) == (2, True)

    # kubelet-start: files, then the service
    host.join(api, socket_in_file=socket_in_file)
    kubelet.start()
    until(lambda: healthz(host) == 200, "a healthy kubelet")

    # kubelet-wait-bootstrap: the kubeconfig with the node's own certificate; then the token goes
    until(host.kubeconfig.exists, "kubelet.conf")
    access = load_kubeconfig(host.kubeconfig)
    assert access.certificate == host.kubelet / "pki/kubelet-client-current.pem"
    host.bootstrap.unlink()
    (request,) = api.admin.list("certificatesigningrequests")["items"]
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request["spec"]["username"] == "system:bootstrap:abcdef"
    assert set(request["spec"]["usages"]) <= {"digital signature", "key encipherment", "client auth"}

    # the node is one
    node = ClusterNode(api, kubelet)
    found = node.wait_ready()
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == NAME
    assert "example.com/joined" in {one["key"] for one in found["spec"]["taints"]}
    assert found["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == host.port
    node.apply("first")
    node.wait_running("first")
    unused = [line for line in kubelet.log_path.read_text().split("\n") if "Setting has no effect" in line]
    assert [("--pod-infra-container-image" in line) for line in unused] == [] if socket_in_file else [True]

    # older kubeadms note the runtime's socket on the Node, as the node
    note = {"kubeadm.alpha.kubernetes.io/cri-socket": host.socket}
    api.node_client(NAME).patch("nodes", NAME, {"metadata": {"annotations": note}})

    # it goes on without kubeadm, and takes further runtimes
    second = lab.containerds["containerd-b"]
    done = subprocess.run(
        [program, f"--root-dir={host.kubelet}", "runtime", "add", f"container:second:{second.endpoint}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    until(
        lambda: {one.name for one in kubelet.runtimes() if one.status == "Ready"} == {"default", "second"},
        "two runtimes",
    )
    kubelet.restart()
    assert note.items() <= node.wait_ready()["metadata"]["annotations"].items()
    node.wait_running("first")
    assert len(api.admin.list("certificatesigningrequests")["items"]) == 1
