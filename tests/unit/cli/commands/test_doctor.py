"""``kubeletx doctor`` on a node that is well, and with one broken fact after the other."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kubeletx.agent.config.tree import AgentConfig, ClusterSettings, EndpointText, RuntimeSettings
from kubeletx.cli.connection.client import AgentClient
from kubeletx.cli.main import cli
from kubeletx.cli.setup.checks import CHECKS
from kubeletx.cli.setup.cri_servers import CriServer
from kubeletx.cli.setup.doctor import CheckNote, Diagnosis, DoctorNode, examine
from tests.unit.cli.commands.objects import Run, runtime

NETWORK = "etc/cni/net.d/10-pods.conflist"
ROUTES = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
WELL = {
    "proc/sys/kernel/osrelease": "6.1.0-13-amd64",
    "proc/filesystems": "nodev\tproc\nnodev\toverlay\n",
    "proc/self/status": "CapBnd:\t000001ffffffffff\n",
    "proc/net/tcp": ROUTES,
    "proc/sys/net/ipv4/ip_forward": "1",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "etc/resolv.conf": "nameserver 192.0.2.53\n",
    NETWORK: json.dumps(
        {
            "name": "pods",
            "plugins": [
                {"type": "bridge", "ipMasq": True, "ipam": {"type": "host-local"}},
                {"type": "portmap"},
            ],
        }
    ),
    "usr/sbin/iptables": "",
    **{f"proc/self/ns/{name}": "" for name in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")},
    **{f"usr/lib/cni/{name}": "" for name in ("bridge", "host-local", "portmap")},
}
SERVER = CriServer(
    name="containerd",
    path=Path("/run/containerd/containerd.sock"),
    version="containerd 1.6.20",
    cgroup_driver="cgroupfs",
    settings={"restrictOOMScoreAdj": False},
    sandbox_image="registry.local/pause:1",
)
ENDPOINT = EndpointText(
    text="container:containerd:unix:///run/containerd/containerd.sock", origin="config.yaml", key="x"
)
OF_THE_AGENT = {"agent", "plugins"}
"""Checks of which the agent's answers are in tests of their own."""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def make_node(root: Path, server: CriServer = SERVER, **changed: Any) -> DoctorNode:
    config = AgentConfig(
        root_dir=Path("/var/lib/kubeletx"),
        runtimes=RuntimeSettings(endpoints=(ENDPOINT,)),
        **changed.pop("sections", {}),
    )
    socket = AgentClient(root / "kubeletx.sock")
    node = DoctorNode(
        config=config, agent=socket, root=root, **{"is_clock_synchronised": lambda: True, **changed}
    )
    node.servers = (server,)
    return node


def diagnose(node: DoctorNode, *names: str) -> Diagnosis:
    checks = {name: check for name, check in CHECKS.items() if name in names or not names}
    return examine(checks, node, seconds=120)


def only(node: DoctorNode, name: str) -> tuple[str, str, str]:
    """Return state, text and fix of the only finding of a check."""
    (found,) = diagnose(node, name).findings
    return found.state, found.text, found.fix


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, WELL)
    return tmp_path


def test_a_node_that_is_well_has_one_finding_for_each_check(root: Path) -> None:
    found = diagnose(make_node(root), *(CHECKS.keys() - OF_THE_AGENT))
    assert {(one.check, one.state) for one in found.findings} == {
        (name, "ok") for name in CHECKS.keys() - OF_THE_AGENT
    }
    assert found.state == "ok"


@pytest.mark.parametrize(
    ("check", "files", "state", "words"),
    [
        ("kernel", {"proc/sys/kernel/osrelease": "4.19.0"}, "problem", "older than 5.3"),
        ("kernel", {"proc/filesystems": "nodev\tproc\n"}, "problem", "no overlay file system"),
        ("kernel", {"proc/self/ns/user": None}, "problem", "no namespaces of kind user"),
        ("cgroups", {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids"}, "problem", "controller memory"),
        (
            "cgroups",
            {"sys/fs/cgroup/cgroup.controllers": None, **{f"sys/fs/cgroup/{c}/x": "" for c in ("cpu", "cpuset", "memory", "pids")}},
            "warning",
            "cgroup v1",
        ),
        ("network", {"proc/sys/net/ipv4/ip_forward": "0"}, "warning", "ip_forward is off"),
        ("network", {NETWORK: None}, "problem", "no CNI configuration"),
        ("network", {NETWORK: "{"}, "problem", "10-pods.conflist: Input data was truncated"),
        ("network", {NETWORK: '{"plugins": [{}]}'}, "problem", "plugins[0].type is missing"),
        ("network", {"usr/lib/cni/host-local": None}, "problem", "needs host-local, not in /opt/cni/bin, /usr/lib/cni"),
        ("network", {"usr/sbin/iptables": None}, "problem", "needs iptables"),
        ("dns", {"etc/resolv.conf": "search example.com\n"}, "problem", "names no DNS server"),
        ("dns", {"etc/resolv.conf": "nameserver 127.0.0.53\n"}, "warning", "which pods cannot reach"),
        ("dns", {"etc/resolv.conf": "nameserver 192.0.2.1\n" * 4}, "warning", "names 4 DNS servers"),
    ],
)  # fmt: skip
def test_a_broken_fact_is_named_with_a_fix(
    root: Path, check: str, files: dict[str, str | None], state: str, words: str
) -> None:
    for name, text in files.items():
        if text is None:
            (root / name).unlink()
        else:
            write(root, {name: text})
    found_state, text, fix = only(make_node(root), check)
    assert (found_state, words in text, bool(fix)) == (state, True, True), text


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"error": "unknown service", "has_no_cri": True}, "problem", "its plugin is disabled"),
        (
            {"error": "Connection refused"},
            "problem",
            "does not answer on /run/containerd/containerd.sock: Connection",
        ),
        ({"problems": ("RuntimeReady: no",)}, "problem", "RuntimeReady: no"),
        ({"cgroup_driver": "systemd"}, "problem", "systemd does not run"),
        ({"has_sandbox_image": False}, "warning", "lacks its sandbox image registry.local/pause:1"),
    ],
)
def test_settings_of_containerd_are_checked(
    root: Path, change: dict[str, Any], state: str, words: str
) -> None:
    node = make_node(root, msgspec.structs.replace(SERVER, **change))
    found_state, text, fix = only(node, "runtimes")
    assert (found_state, words in text, bool(fix)) == (state, True, True), text


def test_without_cap_sys_resource_containerd_must_restrict_oom_scores(root: Path) -> None:
    write(root, {"proc/self/status": f"CapBnd:\t{0x1FFFFFFFFFF & ~(1 << 24):016x}\n"})
    assert "restrict_oom_score_adj = true" in only(make_node(root), "runtimes")[2]
    restricted = msgspec.structs.replace(SERVER, settings={"restrictOOMScoreAdj": True})
    assert only(make_node(root, restricted), "runtimes")[0] == "ok"


def test_a_cni_directory_of_containerd_is_used(root: Path) -> None:
    elsewhere = msgspec.structs.replace(
        SERVER, settings={"cni": {"confDir": "/etc/cni/net.d", "binDir": "/opt/cni/bin"}}
    )
    state, text, fix = only(make_node(root, elsewhere), "network")
    assert (state, "needs bridge, host-local, portmap, not in /opt/cni/bin" in text) == ("problem", True)
    assert "bin_dir" in fix


def test_a_node_of_a_cluster_needs_br_netfilter_and_its_kubeconfig(root: Path) -> None:
    cluster = {"cluster": ClusterSettings(kubeconfig=Path("/etc/kubeletx/kubelet.conf"))}
    assert only(make_node(root, sections=cluster), "network")[:2][0] == "warning"
    assert "does not exist yet" in only(make_node(root, sections=cluster), "certificates")[1]


def test_a_clock_that_is_not_synchronised_is_a_warning(root: Path) -> None:
    assert only(make_node(root, is_clock_synchronised=lambda: False), "time")[0] == "warning"


@pytest.mark.parametrize(
    ("free", "inodes", "flags", "words"),
    [
        (9, 50, 0, "9 % of its space free"),
        (50, 4, 0, "4 % of its inodes free"),
        (50, 50, os.ST_RDONLY, "read-only"),
    ],
)
def test_a_full_or_read_only_disk_is_a_problem(
    root: Path, free: int, inodes: int, flags: int, words: str
) -> None:
    disk = os.statvfs_result((4096, 4096, 100, free, free, 100, inodes, inodes, flags, 255))
    state, text, _ = only(make_node(root, statvfs=lambda _: disk), "disk")
    assert (state, words in text) == ("problem", True), text


def test_a_port_in_use_is_named_with_its_process(root: Path) -> None:
    row = (
        "   0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    )
    write(root, {"proc/net/tcp": ROUTES + row, "proc/77/comm": "kubelet\n", "proc/77/fd/x": ""})
    (root / "proc/77/fd/5").symlink_to("socket:[4711]")
    text, fix = "port 10248 is used by kubelet (pid 77)", "stop it, or set healthzPort to another port"
    assert only(make_node(root), "ports") == ("problem", text, fix)


@pytest.mark.parametrize(
    ("life", "days", "state", "words"),
    [
        (100, -2, "problem", "current.pem expired"),
        (100, 3, "warning", "expires in"),
        (100, 90, "ok", "1 valid until 20"),
        (2, 1, "ok", "1 valid until 20"),  # the agent renews it after 70 to 90 % of its life
    ],
)
def test_the_end_of_a_certificate_is_shown(root: Path, life: int, days: int, state: str, words: str) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    end = datetime.now(UTC) + timedelta(days=days)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, end - timedelta(days=life), end)
    file = root / "var/lib/kubeletx/pki/kubelet-client-current.pem"
    file.parent.mkdir(parents=True)
    file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    found_state, text, _ = only(make_node(root), "certificates")
    assert (found_state, words in text) == (state, True), text
    file.write_text("garbage")
    assert only(make_node(root), "certificates")[0] == "problem"


def test_a_check_that_fails_or_hangs_stops_no_other(root: Path) -> None:
    release = threading.Event()

    def hangs(_: DoctorNode) -> Iterator[CheckNote]:
        release.wait()
        yield CheckNote("ok", "late")

    def fails(_: DoctorNode) -> Iterator[CheckNote]:
        yield CheckNote("ok", "so far")
        raise ValueError("broken")

    try:
        found = examine({"hangs": hangs, "other": CHECKS["time"]}, make_node(root), seconds=0.05)
    finally:
        release.set()
    assert [one.check for one in found.findings] == ["hangs", "other"]
    assert "has not ended within 0.05 s" in found.findings[0].text
    checks = {"fails": fails, "time": CHECKS["time"]}
    broken, fine = examine(checks, make_node(root), seconds=120).findings
    assert (broken.state, broken.text) == ("problem", "the check failed: ValueError: broken")
    assert fine.state == "ok"


def test_the_running_agent_is_asked_for_itself_and_its_runtimes(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {
        "one": runtime("one"),
        "two": msgspec.structs.replace(runtime("two"), status="NotReady", message="it is tired"),
    }
    found = json.loads(kubeletx("doctor", "-o", "json").stdout)["findings"]
    shown = {(one["check"], one["state"], one["text"]) for one in found}
    assert any(check == "agent" and state == "ok" for check, state, _ in shown)
    assert ("runtimes", "problem", "two is NotReady: it is tired") in shown
    assert ("runtimes", "problem", "one does not answer on /a: No such file or directory") in shown
    assert ("plugins", "problem", "no plugin for runtimes is installed") in shown


def test_one_screen_says_what_to_do_and_the_exit_code_that_there_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kind: KubeletConfiguration\nnonsense: 1\n")
    command = ["--root-dir", str(tmp_path), "doctor", "--config", str(file)]
    result = CliRunner().invoke(cli, command, env={"COLUMNS": "80"})
    assert result.exit_code == 1
    lines = result.stdout.split("\n")
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("problem  configuration") for line in lines)
    assert any("-> systemctl enable --now kubeletx" in line for line in lines)
    assert "problem" in lines[-2]
