"""The pod network of a lab: one bridge and one address range, shared by all containerds of the lab.

The bridge is made, with its address, when the lab starts, so that another lab sees that this address range is
taken. Names are derived from the lab's base directory: the bridge is ``kx`` + 8 hex digits, the network is
``kubeletx-`` + the same digits. So a sweep can find everything that belongs to a base directory without any
record. There is no masquerading and no default route out of the network: pods reach only each other and this
node.

The portmap plugin needs iptables with NAT. It is left out if a trial rule cannot be added;
`PrivateNetwork.has_portmap` is then False.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import LabError, run
from .tools import find_tool, get_cni_bin_dir, get_tool, search_path

BRIDGE_PREFIX = "kx"
RESULT_CACHE = Path("/var/lib/cni/results")
"""Directory in which libcni caches results. The path is compiled into libcni."""

_POOL = ipaddress.IPv4Network("10.88.0.0/13")
_PREFIX_LENGTH = 22
_LOCK = Path("/run/lock/kubeletx-lab-network")
_PORTMAP_CHAINS = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ")


def key_of(base_dir: Path) -> str:
    """Return eight hex digits derived from a base directory, for names that must be short."""
    return hashlib.sha256(str(base_dir.resolve()).encode()).hexdigest()[:8]


def bridge_name(base_dir: Path) -> str:
    """Return the name of the bridge of the lab with this base directory."""
    return BRIDGE_PREFIX + key_of(base_dir)


def network_name(base_dir: Path) -> str:
    """Return the name of the CNI network of the lab with this base directory."""
    return f"kubeletx-{key_of(base_dir)}"


class PrivateNetwork:
    """The bridge of a lab, and the CNI configuration that uses it. `start` makes both and `stop` removes them."""

    def __init__(self, base_dir: Path) -> None:
        """`base_dir`: base directory of the lab; the network's files are in ``BASE/cni``."""
        self.base_dir = base_dir
        self.conf_dir = base_dir / "cni" / "conf"
        self.bin_dir = get_cni_bin_dir()
        self.bridge = bridge_name(base_dir)
        self.name = network_name(base_dir)
        self.subnet: ipaddress.IPv4Network | None = None
        self.has_portmap = False

    @property
    def gateway(self) -> str:
        """Address of this node on the bridge. Raises LabError before `start`."""
        if self.subnet is None:
            raise LabError("the lab's network is not started")
        return str(self.subnet[1])

    def start(self) -> None:
        """Choose a free address range, make the bridge, and write the CNI configuration."""
        self.has_portmap = can_map_ports()
        with _locked():
            self.subnet = _choose_subnet(self.base_dir)
            _run("ip", "link", "add", self.bridge, "type", "bridge")
            _run("ip", "address", "add", f"{self.gateway}/{_PREFIX_LENGTH}", "dev", self.bridge)
            _run("ip", "link", "set", self.bridge, "up")
        _allow_forwarding(self.bridge, present=True)
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        (self.conf_dir / "10-kubeletx.conflist").write_text(json.dumps(self.conflist(), indent=2) + "\n")

    def stop(self) -> None:
        """Remove the bridge, cached results and iptables rules of the network; a second call does nothing."""
        remove_network(self.base_dir)

    def conflist(self) -> dict[str, object]:
        """Return the CNI network configuration list that containerd reads."""
        plugins: list[dict[str, object]] = [
            {
                "type": "bridge",
                "bridge": self.bridge,
                "isGateway": True,
                "isDefaultGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(self.subnet), "gateway": self.gateway}]],
                    "dataDir": str(self.base_dir / "cni" / "ipam"),
                },
            }
        ]
        if self.has_portmap:
            plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
        return {"cniVersion": "0.4.0", "name": self.name, "plugins": plugins}

    def list_addresses(self) -> list[str]:
        """Return the addresses that are currently assigned to pods, read from the host-local plugin's files."""
        directory = self.base_dir / "cni" / "ipam" / self.name
        if not directory.is_dir():
            return []
        return sorted(path.name for path in directory.iterdir() if path.name[0].isdigit())


def can_map_ports() -> bool:
    """Return True if NAT rules, as the portmap plugin needs them, can be added on this machine.

    Adds and removes a trial rule.
    """
    if find_tool("iptables") is None or not (get_cni_bin_dir() / "portmap").exists():
        return False
    chain = f"KUBELETX-TRIAL-{os.getpid()}"  # others may try at the same moment
    try:
        _run("iptables", "-w", "10", "-t", "nat", "-N", chain)
    except LabError:
        return False
    rule = ["-p", "tcp", "-m", "comment", "--comment", "trial", "-m", "multiport", "--destination-ports", "1"]
    rule += ["-m", "addrtype", "--dst-type", "LOCAL", "-j", "DNAT", "--to-destination", "127.0.0.1:1"]
    try:
        _run("iptables", "-w", "10", "-t", "nat", "-A", chain, *rule)
    except LabError:
        return False
    finally:
        _try("iptables", "-w", "10", "-t", "nat", "-F", chain)
        _try("iptables", "-w", "10", "-t", "nat", "-X", chain)
    return True


def remove_network(base_dir: Path) -> None:
    """Remove a base directory's bridge, cached results and iptables rules; succeeds if there are none."""
    if Path("/sys/class/net", bridge_name(base_dir)).exists():
        _try("ip", "link", "delete", bridge_name(base_dir))
        _allow_forwarding(bridge_name(base_dir), present=False)
    for path in _cached_results(base_dir):
        path.unlink(missing_ok=True)
    for chain in _own_chains(base_dir):
        _remove_chain(chain)
    _remove_empty_portmap_chains()


def remove_loopback_results(ids: Iterable[str]) -> None:
    """Remove libcni's cached results for the loopback network of these sandboxes.

    Their file names contain only the sandbox id and not the lab's network. `ids`: sandbox ids.
    """
    for cni_id in ids:
        (RESULT_CACHE / f"cni-loopback-{cni_id}-lo").unlink(missing_ok=True)


def network_leftovers(base_dir: Path) -> list[str]:
    """Return what still exists of a base directory's network, one line for each object."""
    leftovers = []
    if Path("/sys/class/net", bridge_name(base_dir)).exists():
        leftovers.append(f"bridge {bridge_name(base_dir)}")
    leftovers += [f"CNI result {path}" for path in _cached_results(base_dir)]
    leftovers += [f"iptables chain {chain}" for chain in _own_chains(base_dir)]
    return leftovers


def _choose_subnet(base_dir: Path) -> ipaddress.IPv4Network:
    """Return a free address range of the pool. Where the search begins depends on the base directory."""
    taken = _taken_networks()
    candidates = list(_POOL.subnets(new_prefix=_PREFIX_LENGTH))
    first = int(key_of(base_dir), 16) % len(candidates)
    for candidate in candidates[first:] + candidates[:first]:
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    raise LabError(f"no free /{_PREFIX_LENGTH} in {_POOL}: every one is an address or route of this machine")


def _taken_networks() -> list[ipaddress.IPv4Network]:
    networks = []
    for route in json.loads(_run("ip", "-j", "-4", "route", "show", "table", "all") or "[]"):
        destination = str(route.get("dst", ""))
        if destination and destination != "default":
            networks.append(ipaddress.IPv4Network(destination, strict=False))
    return networks


def _allow_forwarding(bridge: str, *, present: bool) -> None:
    """Add or remove the rule that lets pods on this bridge reach each other.

    The rule is needed if the policy of the FORWARD chain is DROP, which Docker sets. `present`: True adds the
    rule if it is needed; False removes it.
    """
    if find_tool("iptables") is None:
        return
    rule = ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]
    if not present:
        _try("iptables", "-w", "10", "-D", *rule)
    elif "-P FORWARD DROP" in _try("iptables", "-w", "10", "-S", "FORWARD"):
        _run("iptables", "-w", "10", "-I", *rule)


def _cached_results(base_dir: Path) -> list[Path]:
    return sorted(RESULT_CACHE.glob(f"{network_name(base_dir)}-*")) if RESULT_CACHE.is_dir() else []


def _nat_rules() -> list[str]:
    if find_tool("iptables") is None:
        return []
    return _try("iptables", "-w", "10", "-t", "nat", "-S").splitlines()


def _own_chains(base_dir: Path) -> list[str]:
    """Return the iptables chains of single pods (CNI-DN-...) that belong to this network.

    They are found by the network's name, which is in the comments of the rules.
    """
    marks = (f'name: "{network_name(base_dir)}"', f'name: \\"{network_name(base_dir)}\\"')
    chains = set()
    for rule in _nat_rules():
        if any(mark in rule for mark in marks) and " -j CNI-DN-" in rule:
            chains.add(rule.rpartition(" -j ")[2].split()[0])
    return sorted(chains)


def _remove_chain(chain: str) -> None:
    for rule in _nat_rules():
        if rule.startswith("-A") and rule.endswith(f"-j {chain}"):
            _delete_rule(rule)
    _try("iptables", "-w", "10", "-t", "nat", "-F", chain)
    _try("iptables", "-w", "10", "-t", "nat", "-X", chain)


def _remove_empty_portmap_chains() -> None:
    """Remove portmap's three common chains if no pod uses host ports; portmap never removes them itself."""
    rules = _nat_rules()
    if f"-N {_PORTMAP_CHAINS[0]}" not in rules or any(
        rule.startswith(f"-A {_PORTMAP_CHAINS[0]} ") for rule in rules
    ):
        return
    for chain in _PORTMAP_CHAINS:
        _remove_chain(chain)


def _delete_rule(rule: str) -> None:
    """Delete a rule, given as ``iptables -S`` prints it, with words quoted as in a shell."""
    _try("iptables", "-w", "10", "-t", "nat", "-D", *shlex.split(rule)[1:])


@contextmanager
def _locked() -> Iterator[None]:
    """Hold a lock during the block, so that two labs that start at the same time choose different address ranges."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(tool: str, *arguments: str) -> str:
    return run(get_tool(tool), *arguments, env={"PATH": search_path(), "LANG": "C.UTF-8"}, timeout_seconds=30)


def _try(tool: str, *arguments: str) -> str:
    """Run a command like `_run`, for objects that may not exist. Returns the output; empty if the command fails."""
    try:
        return _run(tool, *arguments)
    except LabError:
        return ""
