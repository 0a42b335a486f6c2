"""The demo's node remedy: a cluster in memory, in which a StatefulSet's pod moves off a machine that hangs and is switched off.

``script/demo --remedy`` shows it alone, without root and without a daemon. ``python -m script.demonstration.remedy DIRECTORY``
only keeps such a cluster, for docs/remedy.md. The API server is the tests' double; a machine is a file of
fence_dummy, and a kubelet is the part of `MemoryCluster.look` that reports what the file says.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.lab import LabError

from .progress import live_picture

Json = dict[str, Any]
CONFIG: Final = Path(__file__).resolve().parents[2] / "examples" / "remedy" / "workers.yaml"
PLACE: Final = "/tmp/try"
"""Directory of the machines in the example."""
NODES: Final = ("worker-1", "worker-2", "worker-3")
POD: Final = "web-0"
LOOK_SECONDS = 0.2
BOOT_SECONDS = 3.0
LIMIT_SECONDS = 120
"""Most seconds of the scene, on a busy machine."""
_INFO: Final = (
    "machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


class MemoryCluster:
    """Three workers and the StatefulSet ``web`` in an API server in memory; its pod writes lines to a volume, ``volume.txt``.

    `directory` has ``admin.conf``, and for each node ``NODE.power`` (its machine, ``on`` or ``off``); while ``NODE.hung``
    exists, its kubelet is silent although the machine is on. A machine that is off no longer hangs.
    """

    def __init__(self, directory: Path, boot_seconds: float = BOOT_SECONDS) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._boot_seconds = boot_seconds
        self._api = ApiServerDouble(directory.resolve() / "apiserver")  # its kubeconfig names files
        self._boots = dict.fromkeys(NODES, 1)
        self._ready: dict[str, str] = {}
        self._on_since: dict[str, float | None] = {}
        self._switched: dict[str, int] = {}
        self._writers: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = directory / "admin.conf"
        self.volume = directory / "volume.txt"

    def start(self) -> None:
        self._api.start()
        self._api.admin_kubeconfig().replace(self.kubeconfig)
        for name in NODES:
            self.machine(name).write_text("on")
            self._on_since[name] = float("-inf")
            self._switched[name] = self.machine(name).stat().st_mtime_ns
            meta = {"name": name, "labels": {"type": "compute"}}
            self._api.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        self.look()

    def stop(self) -> None:
        for name in NODES:
            self._end_writer(name)
        self._api.close()

    def machine(self, name: str) -> Path:
        return self.directory / f"{name}.power"

    def hung(self, name: str) -> Path:
        return self.directory / f"{name}.hung"

    def look(self) -> None:
        """Do what kubelets and the StatefulSet controller do now."""
        for name in NODES:
            self._report(name)
        try:
            self._api.admin.get("pods", POD, "default")
        except StatusError:
            for name in NODES:  # a machine may have been switched off since its report
                self._report(name)
            self._place()

    def written(self) -> list[tuple[str, int]]:
        """Return who has written to the pod's volume, in order: nodes, each with the number of its lines."""
        return [
            (node, len(list(lines))) for node, lines in itertools.groupby(self.volume.read_text().split())
        ]

    def nodes(self) -> list[Json]:
        found: list[Json] = self._api.admin.list("nodes")["items"]
        return found

    def pods(self, node: str) -> list[str]:
        items = self._api.admin.list("pods", "default")["items"]
        return [pod["metadata"]["name"] for pod in items if pod["spec"].get("nodeName") == node]

    def fence(self, node: str) -> Json:
        """Return the node's NodeFence; empty if it has none."""
        reply = self._api.admin.send("GET", f"/apis/ha.k8s.io/v1/nodefences/node-fence-{node}")
        return reply.json if reply.code == 200 else {}

    def _report(self, name: str) -> None:
        stamp = self.machine(name).stat().st_mtime_ns
        if stamp != self._switched[name]:  # perhaps off and on again since the last look
            self._switched[name] = stamp
            self._on_since[name] = None
            self._end_writer(name)
            self.hung(name).unlink(missing_ok=True)
        if self.machine(name).read_text().strip() == "on" and self._on_since[name] is None:
            self._on_since[name] = time.monotonic()
            self._boots[name] += 1
        since = self._on_since[name]
        has_booted = since is not None and time.monotonic() - since >= self._boot_seconds
        status = "True" if has_booted and not self.hung(name).exists() else "Unknown"
        if self._ready.get(name) == status:
            return
        self._ready[name] = status
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now, "lastHeartbeatTime": now}
        info = {**dict.fromkeys(_INFO, ""), "bootID": f"boot {self._boots[name]}"}
        node = self._api.admin.get("nodes", name)
        node["status"] = {**node.get("status", {}), "conditions": [condition], "nodeInfo": info}
        with contextlib.suppress(StatusError):  # changed meanwhile: the next look reports it
            self._ready.pop(name)
            self._api.admin.replace("nodes", node, "status")
            self._ready[name] = status

    def _place(self) -> None:
        """Start the missing pod on the first node that takes pods."""
        for node in self.nodes():
            name = node["metadata"]["name"]
            if self._ready.get(name) == "True" and not node["spec"].get("unschedulable"):
                spec = {"nodeName": name, "containers": [{"name": "web", "image": "web"}]}
                meta = {"name": POD, "labels": {"app": "web"}}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
                self._api.admin.create("pods", pod, "default")
                # It ends when this process has ended or was killed.
                line = f"echo {name} >>{shlex.quote(str(self.volume))}"
                writer = f"while kill -0 $PPID 2>/dev/null && {line}; do sleep 0.1; done"
                self._end_writer(name)
                self._writers[name] = subprocess.Popen(
                    ["sh", "-c", writer], stdin=subprocess.DEVNULL, start_new_session=True
                )
                return

    def _end_writer(self, name: str) -> None:
        """End the pod's program on this node, as the power does: a node that only hangs still writes."""
        if (writer := self._writers.pop(name, None)) is not None:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()


def show_remedy(console: Console, boot_seconds: float = BOOT_SECONDS) -> None:
    """Play the scene, as a live picture on a terminal. Raises LabError if it does not end as it should."""
    with tempfile.TemporaryDirectory(prefix="kubeletx-remedy-") as directory:
        cluster = MemoryCluster(Path(directory), boot_seconds)
        cluster.start()
        config = cluster.directory / "workers.yaml"
        config.write_text(CONFIG.read_text().replace(PLACE, directory))
        log = (cluster.directory / "remedy.log").open("wb")
        flags = [f"--kubeconfig={cluster.kubeconfig}", f"--config={config}"]
        controller = subprocess.Popen(
            [sys.executable, "-m", "kubeletx.remedy", *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _play(console, cluster, controller)
        finally:
            controller.terminate()
            controller.wait()
            log.close()
            cluster.stop()


def _play(console: Console, cluster: MemoryCluster, controller: subprocess.Popen[bytes]) -> None:
    story: list[str] = []
    sick = NODES[0]
    with live_picture(console, lambda: picture(cluster, story)) as show:

        def look() -> None:
            cluster.look()
            story[1:] = [_line(entry) for entry in cluster.fence(sick).get("history", ())]
            show()

        def until(is_so: Callable[[], bool]) -> None:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not is_so():
                if time.monotonic() > deadline:
                    raise LabError(f"not within {LIMIT_SECONDS} s: {(story or ['the first look'])[-1]}")
                if controller.poll() is not None:
                    raise LabError(f"kubeletx remedy ended with exit code {controller.returncode}")
                look()
                time.sleep(LOOK_SECONDS)

        story.append(f"{sick} hangs: its machine is on, its kubelet is silent")
        cluster.hung(sick).touch()
        until(lambda: cluster.pods(sick) == [] and any(map(cluster.pods, NODES)))
        until(lambda: cluster.fence(sick).get("status") == "Final")
        look()
        (place,) = (name for name in NODES if cluster.pods(name))
        (before, kept), *others = cluster.written()
        if before != sick or [node for node, _ in others] != [place]:
            raise LabError(
                f"the volume of {POD} has lines of {cluster.written()}, and not of {sick}, then of {place}"
            )
        story.append(
            f"{sick} is back; {POD} runs on {place}, with the {kept} lines that {sick} had written to its volume"
        )
        show()


def _line(entry: Json) -> str:
    clock = entry["time"].partition("T")[2][:8]
    return f"{clock}  {entry.get('step', ''):16} {entry.get('status', ''):8} {entry.get('message', '')}"


def picture(cluster: MemoryCluster, story: list[str]) -> RenderableType:
    """Draw nodes, machines and pods, and the history of the flow."""
    nodes = Table(title="nodes", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("NODE", "READY", "MACHINE", "PODS", "FLOW"):
        nodes.add_column(heading)
    for node in cluster.nodes():
        name = node["metadata"]["name"]
        conditions = node.get("status", {}).get("conditions") or [{"status": "Unknown"}]
        ready, power = conditions[0]["status"], cluster.machine(name).read_text()
        if power == "on" and cluster.hung(name).exists():
            power = "hangs"
        fence = cluster.fence(name)
        colour, machine_colour = ("green" if good else "red" for good in (ready == "True", power == "on"))
        cordoned = " (cordoned)" if node["spec"].get("unschedulable") else ""
        nodes.add_row(
            name,
            f"[{colour}]{ready}[/]{cordoned}",
            f"[{machine_colour}]{power}[/]",
            " ".join(cluster.pods(name)),
            f"{fence['step']} {fence.get('status', '')}" if fence else "",
        )
    return Group(nodes, *map(Text, story), "")


def keep(console: Console, directory: Path) -> None:
    """Keep the cluster in `directory` until interrupted."""
    cluster = MemoryCluster(directory)
    cluster.start()
    console.print(f"{', '.join(NODES)} are ready; kubeconfig: {cluster.kubeconfig}", highlight=False)
    try:
        while True:
            cluster.look()
            time.sleep(LOOK_SECONDS)
    finally:
        cluster.stop()


def main() -> int:
    """Show the scene, or keep a cluster; exit status 0 if all was well."""
    parser = argparse.ArgumentParser(prog="script.demonstration.remedy", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", help="keep a cluster here until Ctrl-C")
    directory = parser.parse_args().directory
    console = Console()
    try:
        keep(console, directory) if directory else show_remedy(console)
    except LabError as error:
        console.print(f"[bold red]failed:[/] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
