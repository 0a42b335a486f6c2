"""The checks of `kubeletx doctor`, one function for each subject, in the order in which they are shown."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from kubeletx import __version__
from kubeletx.agent.config.ports import listens
from kubeletx.api.errors import KubeletxError, Unavailable
from kubeletx.kube.text.human import age, human_bytes
from kubeletx.runtimes.cni.config import load_config
from kubeletx.server.views import PluginView

from ..output.words import now
from .cri_servers import CriServer
from .doctor import OK, PROBLEM, WARNING, Check, CheckNote, DoctorNode

_OLDEST_KERNEL: Final = (5, 3)
"""First version with pidfd_open(2), by which the agent waits for programs."""
_NAMESPACES: Final = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}
_CONTROLLERS: Final = {"cpu", "cpuset", "memory", "pids"}
_CAP_SYS_RESOURCE: Final = 24
_EVICTION_PERCENT: Final = {"space": 10, "inodes": 5}
"""Below them pods are evicted by default. Source: kubelet, evictionHard."""
_EXPIRES_SOON: Final = timedelta(days=7)
_LEFT_PERCENT: Final = 10
"""Share of a certificate's life that is left when doctor warns; the agent renews it before."""
_LISTENS: Final = "0A"
_PROGRAMS: Final = ("/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin")
_LOOPBACK: Final = ("127.", "::1")
_MOST_NAMESERVERS: Final = 3
_RESTART: Final = "systemctl restart kubeletx; pods keep running"
_START: Final = "systemctl enable --now kubeletx, or: kubeletx setup --start"


def _problem(text: str, fix: str) -> CheckNote:
    return CheckNote(PROBLEM, text, fix)


def _warning(text: str, fix: str) -> CheckNote:
    return CheckNote(WARNING, text, fix)


def _kernel(node: DoctorNode) -> Iterator[CheckNote]:
    release = node.text("/proc/sys/kernel/osrelease")
    version = tuple(map(int, re.findall(r"\d+", release)[:2]))
    if version < _OLDEST_KERNEL:
        yield _problem(f"Linux {release} is older than 5.3", "install a newer kernel")
    missing = _NAMESPACES - {path.name for path in node.at("/proc/self/ns").glob("*")}
    if missing:
        yield _problem(f"no namespaces of kind {', '.join(sorted(missing))}", "boot another kernel")
    modules = [node.text(f"/lib/modules/{release}/modules.{name}") for name in ("dep", "builtin")]
    if "overlay" not in node.text("/proc/filesystems").split() and "/overlay.ko" not in "".join(modules):
        yield _problem("no overlay file system, which images need", "boot another kernel")
    yield CheckNote(OK, f"Linux {release}, namespaces, overlay")


def _cgroups(node: DoctorNode) -> Iterator[CheckNote]:
    unified = node.text("/sys/fs/cgroup/cgroup.controllers")
    found = set(unified.split() or (path.name for path in node.at("/sys/fs/cgroup").glob("*")))
    missing = sorted(_CONTROLLERS - found)
    if missing:
        fix = "enable them on the kernel's command line, such as cgroup_enable=memory"
        yield _problem(f"no cgroup controller {', '.join(missing)}", fix)
    if not unified:
        fix = "boot with systemd.unified_cgroup_hierarchy=1"
        yield _warning("cgroup v1, which systemd and Kubernetes phase out", fix)
    yield CheckNote(OK, f"cgroup v2 with {', '.join(sorted(_CONTROLLERS))}")


def _runtimes(node: DoctorNode) -> Iterator[CheckNote]:
    items = node.endpoints
    if not items:
        yield _problem("no runtime is configured", "apt install containerd, then kubeletx setup")
    for server in node.servers:
        yield from _server(node, server)
    answering = [server.version for server in node.servers if not server.error]
    if any(item.url.startswith("qemu") for item in items) and not node.at("/dev/kvm").exists():
        fix = "switch virtualisation on in the firmware, or nested virtualisation in the host"
        yield _warning("no /dev/kvm: virtual machines are slow", fix)
    for item in items if isinstance(node.version, KubeletxError) else ():
        if item.url.endswith("qemu:///system") and (problem := _libvirt(node, item.name)):
            yield problem
    for view in node.runtimes:
        if view.status != "Ready":
            text = f"{view.name} is {view.status}: {view.message or view.reason}"
            yield _problem(text, f"kubeletx describe runtime {view.name}")
        elif view.version and view.version not in answering:
            answering.append(view.version)
    yield CheckNote(OK, f"{', '.join(item.name or item.url for item in items)}: {', '.join(answering)}")


def _server(node: DoctorNode, server: CriServer) -> Iterator[CheckNote]:
    name = server.name
    config = "/etc/containerd/config.toml"
    if server.has_no_cri:
        fix = f'remove "cri" from disabled_plugins in {config}, and restart containerd'
        yield _problem(f"{name} has no CRI: its plugin is disabled", fix)
    elif server.error:
        yield _problem(f"{name} does not answer on {server.path}: {server.error}", f"systemctl status {name}")
    for problem in server.problems:
        yield _problem(f"{name}: {problem}", f"journalctl -u {name}")
    if server.cgroup_driver == "systemd" and not node.at("/run/systemd/system").exists():
        fix = f"set SystemdCgroup = false in {config}"
        yield _problem(f"{name} uses cgroup driver systemd, and systemd does not run", fix)
    if not server.has_sandbox_image:
        text = f"{name} lacks its sandbox image {server.sandbox_image}: the first pod pulls it"
        yield _warning(text, f"ctr -n k8s.io images pull {server.sandbox_image}")
    bounding = re.search(r"CapBnd:\s*([0-9a-f]+)", node.text("/proc/self/status"))
    lacks = bounding is not None and not int(bounding[1], 16) >> _CAP_SYS_RESOURCE & 1
    if lacks and server.settings.get("restrictOOMScoreAdj") is False:
        section = '[plugins."io.containerd.grpc.v1.cri"]'
        fix = f"set restrict_oom_score_adj = true in section {section} of {config}"
        yield _problem(f"{name} may not lower OOM scores here: no container starts", fix)


def _libvirt(node: DoctorNode, name: str) -> CheckNote | None:
    """Return what is wrong with libvirt if no agent runs, which else reports more."""
    if any(node.at(f"/run/libvirt/{socket}").exists() for socket in ("libvirt-sock", "virtqemud-sock")):
        return None
    return _problem(f"{name} has no socket in /run/libvirt", "systemctl start libvirtd.socket")


def _network(node: DoctorNode) -> Iterator[CheckNote]:
    if node.text("/proc/sys/net/ipv4/ip_forward") == "0":
        text = "ip_forward is off: pods reach no other network until a CNI plugin sets it"
        yield _warning(text, "sysctl -w net.ipv4.ip_forward=1")
    bridges = node.text("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if node.config.cluster.kubeconfig is not None and bridges != "1":
        fix = "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1"
        yield _warning("br_netfilter is off: pods on a bridge miss services of their own node", fix)
    cni = next((server.settings.get("cni") for server in node.servers if server.settings), None) or {}
    try:
        network = load_config(node.at(cni.get("confDir") or "/etc/cni/net.d"))
    except Unavailable as error:
        text = error.message.removeprefix("pod network: ").rpartition("; ")[0] or error.message
        yield _problem(
            f"{text}: only pods with hostNetwork start", "kubeletx setup writes one if there is none"
        )
        return
    named = [cni["binDir"]] if cni.get("binDir") else node.config.network.cni_bin_dirs
    types = [plugin["type"] for plugin in network.plugins]
    helpers = [(plugin.get("ipam") or {}).get("type") for plugin in network.plugins]
    wanted = {*types, *filter(None, helpers)}
    missing = sorted(
        name for name in wanted if not any(node.at(path).joinpath(name).exists() for path in named)
    )
    if missing:
        text = f"{network.origin} needs {', '.join(missing)}, not in {', '.join(map(str, named))}"
        yield _problem(text, "apt install containernetworking-plugins, or set bin_dir of containerd")
    needs_iptables = "portmap" in types or any(plugin.get("ipMasq") for plugin in network.plugins)
    if needs_iptables and not any(node.at(f"{path}/iptables").exists() for path in _PROGRAMS):
        yield _problem(f"{network.origin} needs iptables", "apt install iptables")
    yield CheckNote(OK, f"{network.origin} with {', '.join(types)}")


def _dns(node: DoctorNode) -> Iterator[CheckNote]:
    path = node.config.network.resolv_conf
    if path is None:
        yield CheckNote(OK, "pods get no resolver file of the node")
        return
    lines = [line.split() for line in node.text(path).split("\n")]
    servers = [fields[1] for fields in lines if len(fields) > 1 and fields[0] == "nameserver"]
    if not servers:
        yield _problem(f"{path} names no DNS server", "add a line 'nameserver ADDRESS'")
    elif all(server.startswith(_LOOPBACK) for server in servers):
        text = f"{path} names {servers[0]}, which pods cannot reach"
        yield _warning(text, "set resolvConf to a file with other servers: /run/systemd/resolve/resolv.conf")
    if len(servers) > _MOST_NAMESERVERS:
        yield _warning(f"{path} names {len(servers)} DNS servers; pods use three", "remove some")
    yield CheckNote(OK, f"{', '.join(servers)} of {path}")


def _time(node: DoctorNode) -> Iterator[CheckNote]:
    if not node.is_clock_synchronised():
        fix = "start systemd-timesyncd or chrony: timedatectl set-ntp true"
        yield _warning("the clock is not synchronised", fix)
    yield CheckNote(OK, "the clock is synchronised")


def _disk(node: DoctorNode) -> Iterator[CheckNote]:
    stores = [str(server.settings.get("containerdRootDir") or "") for server in node.servers]
    seen, texts = set(), []
    for path in (node.config.root_dir, node.config.logs.pod_logs_dir, *map(Path, filter(None, stores))):
        there = next(place for place in (node.at(path), *node.at(path).parents) if place.exists())
        if (device := there.stat().st_dev) in seen:
            continue
        seen.add(device)
        disk = node.statvfs(there)
        if disk.f_flag & os.ST_RDONLY:
            yield _problem(f"{path} is on a read-only file system", "mount it writable")
        figures = {"space": (disk.f_bavail, disk.f_blocks), "inodes": (disk.f_favail, disk.f_files)}
        for kind, (free, total) in figures.items():
            percent = 100 * free // total if total else 100
            if percent < _EVICTION_PERCENT[kind]:
                text = f"{path} has {percent} % of its {kind} free: pods are evicted"
                yield _problem(text, "remove files; kubeletx image prune removes unused images")
        texts.append(f"{path} {human_bytes(disk.f_bavail * disk.f_frsize)} free")
    yield CheckNote(OK, ", ".join(texts))


def _ports(node: DoctorNode) -> Iterator[CheckNote]:
    used = {}
    for table in ("tcp", "tcp6"):
        for line in node.text(f"/proc/net/{table}").split("\n")[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS:
                used[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    wanted = [port for _, port in listens(node.config) if port]
    server = node.config.server
    names = {server.healthz_port: "healthzPort", server.read_only_port: "readOnlyPort", server.port: "port"}
    settings = {port: names.get(port, "kubeletx.sessionServiceAddress") for port in wanted}
    agent = None if isinstance(node.version, KubeletxError) else node.version.pid
    for port in wanted:
        if port in used and (owner := _owner(node, used[port])) != agent:
            who = f"{node.text(f'/proc/{owner}/comm')} (pid {owner})" if owner else "an unknown process"
            yield _problem(
                f"port {port} is used by {who}", f"stop it, or set {settings[port]} to another port"
            )
    uses = (f"{port} {'of the agent' if port in used else 'free'}" for port in wanted)
    yield CheckNote(OK, ", ".join(uses) or "none needed")


def _owner(node: DoctorNode, inode: str) -> int | None:
    """Return the process that has a socket open; None if it is not visible."""
    for descriptor in node.root.glob("proc/[0-9]*/fd/*"):
        try:
            if descriptor.readlink().name == f"socket:[{inode}]":
                return int(descriptor.parts[-3])
        except OSError:  # closed meanwhile
            continue
    return None


def _certificates(node: DoctorNode) -> Iterator[CheckNote]:
    from cryptography import x509

    config = node.config
    directory = node.at(config.server.cert_dir or config.root_dir / "pki")
    given = filter(None, (config.server.tls_cert_file, config.auth.client_ca_file))
    files = [*sorted(directory.glob("*-current.pem")), *map(node.at, given)]
    kubeconfig = config.cluster.kubeconfig
    if kubeconfig is not None and not node.at(kubeconfig).exists():
        yield _problem(
            f"{kubeconfig} does not exist yet", "write it, or approve the node's request: kubectl get csr"
        )
    first = None
    for file in files:
        try:
            certificates = x509.load_pem_x509_certificates(file.read_bytes())
            end, begin = min((one.not_valid_after_utc, one.not_valid_before_utc) for one in certificates)
        except (OSError, ValueError) as error:
            yield _problem(f"{file}: {error}", "write the certificate again")
            continue
        first = min(end, first or end)
        if end <= now():
            yield _problem(f"{file} expired {age(end, now())} ago", "renew it; see the agent's log")
        elif end - now() < min(_EXPIRES_SOON, (end - begin) * _LEFT_PERCENT / 100):
            yield _warning(f"{file} expires in {age(now(), end)}", "renew it; see the agent's log")
    text = f"{len(files)} valid until {first:%Y-%m-%d}" if first else "none needed without a cluster"
    yield CheckNote(OK, text)


def _plugins(node: DoctorNode) -> Iterator[CheckNote]:
    if isinstance(node.version, KubeletxError):
        from kubeletx.agent.backend.plugins import plugin_views
        from kubeletx.plugins.foreign import load_agent_plugins
        from kubeletx.runtimes.plugins.call_markers import CallMarkers

        markers = CallMarkers(node.config.root_dir, writes=False)
        views = plugin_views(asyncio.run(load_agent_plugins(node.config.plugins, markers=markers)).loaded)
    else:
        views = node.agent.items("/v1/plugins", PluginView)
    for view in views:
        if view.state in ("failed", "degraded"):
            yield _problem(f"{view.name} is {view.state}: {view.reason}", "kubeletx plugins")
    if not any(view.kinds for view in views):
        yield _problem("no plugin for runtimes is installed", "pip install 'kubeletx[containerd]'")
    yield CheckNote(OK, ", ".join(view.name for view in views if view.state == "ready"))


def _configuration(node: DoctorNode) -> Iterator[CheckNote]:
    if node.config_error:
        yield _problem(node.config_error, "correct it, then: systemctl restart kubeletx")
    for unused in node.config.unused:
        yield _warning(str(unused), "remove the setting")
    yield CheckNote(OK, f"root directory {node.config.root_dir}")


def _agent(node: DoctorNode) -> Iterator[CheckNote]:
    view = node.version
    if isinstance(view, KubeletxError):
        text, _, fix = view.message.partition("; ")
        yield _problem(text, _START if isinstance(view, Unavailable) else fix or _RESTART)
        return
    if view.version != __version__:
        text = f"the agent has version {view.version}, this command {__version__}"
        yield _warning(text, _RESTART)
    yield CheckNote(
        OK, f"kubeletx {view.version}, pid {view.pid}, up {age(view.started_at, datetime.now(UTC))}"
    )


CHECKS: Final[dict[str, Check]] = {
    "kernel": _kernel,
    "cgroups": _cgroups,
    "configuration": _configuration,
    "plugins": _plugins,
    "runtimes": _runtimes,
    "network": _network,
    "dns": _dns,
    "time": _time,
    "disk": _disk,
    "ports": _ports,
    "certificates": _certificates,
    "agent": _agent,
}
