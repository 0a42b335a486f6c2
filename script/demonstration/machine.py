"""The demo's virtual machine: its image, libvirt's settings, and the checks of the running machine.

libvirt's driver runs inside the agent (``qemu:///embed``), so there is no daemon and the host's own libvirt is not
touched. Guests are emulated: that works on every host, with or without KVM.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Daemon, Lab, LabError, PrivateAgent
from kubeletx_testing.lab.libvirt import embedded_endpoint
from kubeletx_testing.lab.machines import UP
from kubeletx_testing.lab.process import list_pids

RUNTIME = "libvirt-qemu"
ALIAS = "demo-guest"
"""Name of the image in the manifest."""
GREETING = "hello from "
"""Text that the guest prints when it runs the manifest's script."""
BOOT_SECONDS = 120


class GuestImage:
    """Makes the guest's disk from Debian packages and keeps it in the cache; one in the cache is used.

    It is made by a process of its own, which Ctrl-C can end at any moment.
    """

    def __init__(self, cache_dir: Path, logs_dir: Path) -> None:
        """`logs_dir`: for the process's log, whose lines are its steps."""
        argv = [sys.executable, "-m", "kubeletx_testing.lab", "machine-image", str(cache_dir)]
        self._process = Daemon(name="guest-image", argv=argv, directory=logs_dir)

    def begin(self) -> None:
        """Start to make the disk."""
        self._process.log_path.unlink(missing_ok=True)
        self._process.start()

    def wait(self, say: Callable[[str], None]) -> Path:
        """Wait for the disk; returns its qcow2 file. `say`: called with each step. Raises LabError if it fails."""
        while self._process.is_running:
            say(self._process.log_tail(1))
            time.sleep(0.1)
        if self._process.wait(1) != 0:
            raise LabError(f"the guest's disk cannot be made: {self._process.log_tail()}")
        return Path(self._process.log_tail(1))

    def stop(self) -> None:
        """End the process, and remove what it has begun."""
        self._process.stop()


def settings(image: Path) -> str:
    """The agent's configuration file, with the settings of the libvirt plugin."""
    plugin = {
        "accelerator": "qemu",
        "imageDirectories": [str(image.parent)],
        "imageAliases": {ALIAS: str(image)},
    }
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "kubeletx": {"plugins": {"libvirt": plugin}},
        },
        indent=2,
    )


def endpoint(lab: Lab, cache_dir: Path) -> str:
    """Text of the endpoint for libvirt's embedded driver, as the agent's flag takes it."""
    return embedded_endpoint(lab.base_dir / "v", name=RUNTIME, cache_dir=cache_dir)


def wait_booted(agent: PrivateAgent, name: str, say: Callable[[str], None]) -> tuple[str, ...]:
    """Wait until the guest has booted; returns the lines of its greeting.

    `say`: called with the last line of its console. Raises LabError after `BOOT_SECONDS`. The agent itself is asked:
    one command after the other would take a processor away from the guest.
    """
    deadline = time.monotonic() + BOOT_SECONDS
    while UP not in (log := _console(agent, name)):
        if time.monotonic() > deadline:
            raise LabError(f"{name} did not say {UP!r} in {BOOT_SECONDS} s; its console:\n{log[-2000:]}")
        say(next(reversed(log.splitlines()), "no output yet"))
        time.sleep(0.3)
    return tuple(line.strip() for line in log.splitlines() if GREETING in line or UP in line)


def _console(agent: PrivateAgent, name: str) -> str:
    with contextlib.suppress(LabError):  # there is no log yet
        return agent.get(f"/v1/pods/default/{name}/log").decode(errors="replace")
    return ""


def ask(address: str) -> str:
    """Fetch the guest's page from the node. Raises LabError if the guest does not serve it."""
    url = f"http://{address}/"
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            page: str = answer.read().decode()
    except OSError as err:
        raise LabError(f"the machine does not serve {url}: {err}") from err
    return page.strip()


def fetch_in(agent: PrivateAgent, name: str, url: str) -> str:
    """Fetch a page from inside this pod, a container or a guest. Raises LabError if that fails."""
    done = agent.cli("exec", name, "--", "wget", "-q", "-O", "-", url)
    if done.returncode != 0:
        raise LabError(f"{name} gets nothing from {url}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def emulators(agent: PrivateAgent) -> dict[int, str]:
    """Process id → command line of the QEMU processes whose disks are below the agent's directory."""
    return {pid: line for pid, line in _command_lines() if f"{agent.root_dir}/" in line}


def remains(agent: PrivateAgent, pod: Pod) -> list[str]:
    """Names of what a deleted machine has left: its emulator, disk or address; empty if nothing is left."""
    found = {
        "its emulator": emulators(agent),
        "its disk": list(agent.root_dir.glob("runtimes/*/disks/*/*")),
        f"its address {pod.status.pod_ip}": pod.status.pod_ip in agent.lab.network.list_addresses(),
    }
    return [words for words, is_there in found.items() if is_there]


def _command_lines() -> Iterator[tuple[int, str]]:
    for pid in list_pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended just now
            continue
        if "qemu-system" in line.partition(" ")[0]:
            yield pid, line
