"""The lab of the machines' benchmarks: a private libvirtd, tiny guests, and bare libvirt calls for the floor.

Bare calls and the agent use the same libvirtd. The floor's machines have the XML that the agent's plugin gave to
libvirt for the same manifest; only names, files and devices are their own, and all of these are made before the clock
runs. Times are those at which this process receives libvirt's events, for both sides.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import libvirt
import msgspec
from kubeletx_libvirt.client import start_event_thread
from kubeletx_libvirt.domain.metadata import NAMESPACE

from kubeletx.cli.connection.client import AgentClient, pod_path
from kubeletx.kube.types.core import Pod
from kubeletx.server.views import ApplyReport, DeleteOptions
from kubeletx_testing.lab import PrivateAgent
from kubeletx_testing.lab.cni import key_of
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.process import LabError, run
from kubeletx_testing.lab.tiny_machine import UP, make_tiny_machine_image

from .lab import BenchLab, wait_until
from .orphans import emulators_reaped

RUNTIME = "libvirtd"
MEMORY = "32Mi"
REQUESTED_CPU = "10m"
"""Far less than the limit, so that all machines of a benchmark fit on a node with few processors."""
STARTED, STOPPED, UNDEFINED = (
    libvirt.VIR_DOMAIN_EVENT_STARTED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED,
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED,
)
_AT_ONCE = 8
LISTENS_SECONDS = 0.5
"""Seconds after the guest's message `UP` until it surely reacts to the power button."""


class Moment(NamedTuple):
    """One lifecycle event of a domain, and when it was received."""

    at_ns: int
    event: int
    uuid: str


class Listener:
    """A libvirt connection of its own that records every lifecycle event."""

    def __init__(self, url: str) -> None:
        start_event_thread()
        self.handle = libvirt.open(url)
        self._heard: list[Moment] = []
        self._news = threading.Condition()
        self._number = self.handle.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_event, None
        )

    def close(self) -> None:
        """Disconnect."""
        with suppress(libvirt.libvirtError):
            self.handle.domainEventDeregisterAny(self._number)
            self.handle.close()

    def wait(self, event: int, count: int, since_ns: int, *, seconds: float = 60) -> list[Moment]:
        """Wait for `count` domains to have an event of this kind since `since_ns`; returns the first event of each.

        Raises LabError after `seconds`.
        """
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                moments: dict[str, Moment] = {}
                for one in self._heard:
                    if one.event == event and one.at_ns >= since_ns:
                        moments.setdefault(one.uuid, one)
                if len(moments) >= count:
                    return list(moments.values())[:count]
                if not self._news.wait(deadline - time.monotonic()):
                    raise LabError(f"libvirt told of {len(moments)} of {count} events {event} in {seconds} s")

    def _on_event(self, _c: Any, domain: Any, event: int, _detail: int, _o: Any) -> None:
        at_ns = time.time_ns()
        with self._news:
            self._heard.append(Moment(at_ns, event, domain.UUIDString()))
            self._news.notify_all()


class FloorMachine(NamedTuple):
    """A machine of the floor, ready to be defined.

    `text`: its XML. `files` and `device`: made for it; `device` may be empty.
    """

    uuid: str
    text: str
    files: tuple[Path, ...]
    log: Path
    device: str


class Pattern(NamedTuple):
    """Inactive XML of a machine that the agent's plugin defined, and the content of its cloud-init seed."""

    root: ElementTree.Element
    seed: bytes


class MachineLab(msgspec.Struct, kw_only=True):
    """A private libvirtd that runs beside the containerds of `BenchLab`."""

    bench: BenchLab
    libvirtd: PrivateLibvirtd
    listener: Listener
    directory: Path

    @property
    def image(self) -> Path:
        """Path of the tiny guest's disk."""
        return self.directory / "tiny.img"

    def agent(self) -> PrivateAgent:
        """Make an agent, not started, whose only runtime is this libvirtd."""
        config = self.directory / "agent.json"
        settings = {"accelerator": "qemu", "imageDirectories": [str(self.directory)]}
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "kubeletx": {"plugins": {"libvirt": settings}},
                }
            )
        )
        return self.bench.agent(endpoints=self.libvirtd.endpoint, flags=(f"--config={config}",))

    def put(self, names: Sequence[str], **changes: Any) -> int:
        """Put manifests of machines in place at once; returns the wall-clock nanoseconds afterwards."""
        return self.bench.put_manifests({name: self.manifest(name, **changes) for name in names})

    def manifest(self, name: str, *, image: Path | None = None) -> dict[str, object]:
        """Manifest of a pod that is one tiny machine. `image`: None: the tiny guest's disk."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 10,
                "virtualMachine": {
                    "name": name,
                    "image": str(image or self.image),
                    "resources": {
                        "requests": {"cpu": REQUESTED_CPU, "memory": MEMORY},
                        "limits": {"cpu": "1", "memory": MEMORY},
                    },
                },
            },
        }

    def apply(self, agent: PrivateAgent, name: str) -> int:
        """Apply the pod as ``kubeletx apply`` does; returns the wall-clock nanoseconds before the request."""
        body = msgspec.json.encode(self.manifest(name))
        at_ns = time.time_ns()
        (result,) = AgentClient(agent.socket_path).call("POST", "/v1/pods", ApplyReport, body=body).items
        if result.error is not None:
            raise LabError(f"pod {name} was not applied: {result.error.message}")
        return at_ns

    def delete(self, agent: PrivateAgent, name: str) -> int:
        """Delete the pod as ``kubeletx delete pod`` does; returns the wall-clock nanoseconds before the request."""
        body = msgspec.json.encode(DeleteOptions())
        at_ns = time.time_ns()
        AgentClient(agent.socket_path).call("DELETE", pod_path("default", name), Pod, body=body)
        return at_ns

    def wait_up(self, agent: PrivateAgent, name: str) -> None:
        """Wait until the pod's guest reacts to the power button."""
        pod = agent.pod(name)
        if pod is None:
            raise LabError(f"pod {name} is not there")
        logs = agent.logs_dir / f"default_{pod.metadata.name}_{pod.uid}"
        wait_until(lambda: any(UP in _text(path) for path in logs.rglob("*")), f"guest of {name}")
        time.sleep(LISTENS_SECONDS)

    def take_pattern(self) -> Pattern:
        """Read XML and seed of the first domain that libvirt lists."""
        domain = self.listener.handle.listAllDomains()[0]
        root = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        return Pattern(root, Path(_seed_of(root).attrib["file"]).read_bytes())

    def floor_machines(self, pattern: Pattern, count: int) -> list[FloorMachine]:
        """Make `count` machines from the pattern, each with its own disk, seed and network device.

        They are not defined in libvirt yet.
        """
        return [self._floor_machine(pattern, number) for number in range(count)]

    def remove_floor(self, machines: Sequence[FloorMachine]) -> None:
        """Switch off and undefine those of the machines that still exist, and remove their files and devices."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._forget, [machine.uuid for machine in machines]))
        for machine in machines:
            for path in (*machine.files, machine.log):
                path.unlink(missing_ok=True)
            if machine.device:
                _run("ip", "link", "delete", machine.device)

    def _forget(self, key: str) -> None:
        with suppress(libvirt.libvirtError):
            self.listener.handle.lookupByUUIDString(key).destroy()
        with suppress(libvirt.libvirtError):
            self.listener.handle.lookupByUUIDString(key).undefine()

    def _floor_machine(self, pattern: Pattern, number: int) -> FloorMachine:
        root, key = copy.deepcopy(pattern.root), uuid.uuid4()
        directory = self.directory / "floor"
        directory.mkdir(exist_ok=True)
        _text_of(root, "uuid", str(key))
        _text_of(root, "name", f"kx-{key.hex[:8]}")
        identity = root.find(f"metadata/{{{NAMESPACE}}}unit")
        if identity is not None:  # of the same length, but no agent's
            identity.text = (identity.text or "").replace('"agent_id":"', '"agent_id":"-', 1)
        disk, seed, log = (directory / f"{key}.{kind}" for kind in ("qcow2", "iso", "log"))
        seed.write_bytes(pattern.seed)
        _seed_of(root).set("file", str(seed))
        (source,) = root.findall("devices/disk[boot]/source")
        backing = root.find("devices/disk[boot]/backingStore/source")
        assert backing is not None
        _run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", backing.attrib["file"], str(disk))
        source.set("file", str(disk))
        for element in root.findall("devices/*/log"):
            element.set("file", str(log))
        device = ""
        for element in root.findall("devices/interface/target"):
            device = f"kf{key_of(self.directory)[:6]}{number}"
            bridge = self.bench.lab.network.bridge
            _run("ip", "link", "add", "link", bridge, "name", device, "type", "macvtap", "mode", "bridge")
            _run("ip", "link", "set", device, "up")
            element.set("dev", device)
        for element in root.findall("devices/interface/mac"):
            element.set("address", Path(f"/sys/class/net/{device}/address").read_text().strip())
        return FloorMachine(
            str(key), ElementTree.tostring(root, encoding="unicode"), (disk, seed), log, device
        )


def start_bare(lab: MachineLab, machines: Sequence[FloorMachine], callers: int) -> float:
    """Define and start the machines with `callers` threads; returns the seconds until libvirt's last STARTED event."""

    def one(machine: FloorMachine) -> None:
        lab.listener.handle.defineXMLFlags(machine.text, 0).create()

    with ThreadPoolExecutor(callers) as pool:
        began_ns = time.time_ns()
        list(pool.map(one, machines))
    moments = lab.listener.wait(STARTED, len(machines), began_ns)
    return (moments[-1].at_ns - began_ns) / 1e9


def end_bare(lab: MachineLab, machine: FloorMachine) -> float:
    """Press the power button, wait for the end, and undefine.

    Returns the seconds from the press to libvirt's UNDEFINED event.
    """
    wait_until(lambda: UP in _text(machine.log), "guest of bare libvirt")
    time.sleep(LISTENS_SECONDS)
    domain = lab.listener.handle.lookupByUUIDString(machine.uuid)
    began_ns = time.time_ns()
    domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    lab.listener.wait(STOPPED, 1, began_ns)
    domain.undefine()
    (moment,) = lab.listener.wait(UNDEFINED, 1, began_ns)
    return (moment.at_ns - began_ns) / 1e9


@contextmanager
def machine_lab(bench: BenchLab) -> Iterator[MachineLab]:
    """Context manager: starts a private libvirtd; all its machines are ended afterwards."""
    directory = bench.lab.base_dir / "machines"
    directory.mkdir(exist_ok=True)
    make_tiny_machine_image(directory)
    libvirtd = PrivateLibvirtd(bench.lab.base_dir, name=RUNTIME)
    with emulators_reaped(), ExitStack() as stack:
        stack.callback(libvirtd.end)
        libvirtd.start()
        listener = Listener(libvirtd.url)
        stack.callback(listener.close)
        yield MachineLab(bench=bench, libvirtd=libvirtd, listener=listener, directory=directory)


def _seed_of(root: ElementTree.Element) -> ElementTree.Element:
    (found,) = (
        source
        for source in root.findall("devices/disk/source")
        if source.attrib.get("file", "").endswith(".iso")
    )
    return found


def _text_of(root: ElementTree.Element, tag: str, text: str) -> None:
    element = root.find(tag)
    assert element is not None
    element.text = text


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace") if path.is_file() else ""
    return ""


def _run(*command: str) -> None:
    run(*command)
