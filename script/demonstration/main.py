"""The demo behind script/demo: a lab, an agent with the pods of examples/pods/, and a live table.

Steps: start registry, network and two containerds, and make the guest's disk beside; start the agent, with libvirt
in it, and the storage agent; wait until every pod is Running and ready on the runtime that it asked for; look at both containerds and for
the emulator whether the pods really are there; let containers and machine reach each other; hibernate one pod and
wake it with a request; let a simulated FornaxCore create a pod and open a session, which wakes it; move a volume
from a pod to another one; let an OS image fall back and another one commit; print node readiness and usage; stay until Ctrl-C, or with --once delete the machine, the
core's pod and the pod with the volume; stop everything and check that nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from kubeletx.api.names import RUNTIME_SERVICE_NAME
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.types.core import Pod
from kubeletx.server.views import MeasuredUsage
from kubeletx_testing.lab import (
    Daemon,
    Lab,
    LabError,
    PrivateAgent,
    PrivateStorageAgent,
    bound_runtime,
    is_ready,
)
from kubeletx_testing.lab.fornaxcore import PrivateCores
from kubeletx_testing.lab.machines import PASSWORD

from . import edge, machine, picture, sessions, standby, storage
from .progress import Progress

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / ".demo" / "lab"
LOGS = ROOT / ".demo" / "logs"
CACHE = ROOT / ".cache" / "images"
EXAMPLES = ROOT / "examples" / "pods"
MANIFESTS = BASE / "manifests"
"""Manifests that the agent reads: copies of the examples, which may be changed."""
CONFIG = BASE / "config.json"
NODE_NAME = "demo"
MACHINE = "machine-demo"
WEB = "web-a-demo"
ANSWERS = {MACHINE: "guest", WEB: "served by containerd-a"}
"""Pod → page that it serves; the guest serves its host name."""
TIMEOUT_SECONDS = 120
NEEDED_BYTES = 400 << 20
"""Disk space that images, root file systems and logs take, with room to spare; most while a guest's disk is made."""

console = Console()
progress = Progress(console)


class DemoFailed(Exception):
    """Raised when a check of the demo fails; the message says what was found."""


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Programs and daemons that the demo starts and ends.

    `forward`: the port-forward to the pod on standby. `cores`: the simulated core. `volumes`: the storage agent.
    `image`: makes the guest's disk.
    """

    lab: Lab
    agent: PrivateAgent
    forward: Daemon
    cores: PrivateCores
    volumes: PrivateStorageAgent
    image: machine.GuestImage


def main() -> int:
    """Run the demo; exit status 0 if all checks passed, 1 if not, 130 if it was interrupted before all pods ran."""
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="verify, clean up and exit")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="also write a PNG file of pods and memory"
    )
    arguments = parser.parse_args()
    once = arguments.once
    signal.signal(signal.SIGINT, _interrupt)  # also where it was ignored, as a shell does for background jobs
    signal.signal(signal.SIGTERM, _interrupt)
    lab = Lab(BASE, cache_dir=CACHE, logs_dir=LOGS, say=progress.step)
    agent = PrivateAgent(lab, manifest_dir=MANIFESTS, node_name=NODE_NAME, flags=[f"--config={CONFIG}"])
    programs = Programs(
        lab=lab,
        agent=agent,
        forward=standby.port_forward(agent),
        cores=sessions.make_cores(lab),
        volumes=storage.make_agent(lab, agent),
        image=machine.GuestImage(CACHE, LOGS),
    )
    status = 0
    with progress.shown():
        try:
            run(programs, stay=not once, picture_file=arguments.picture)
        except (DemoFailed, LabError) as err:
            _ignore_interrupts()
            status = 1
            console.print(f"[bold red]failed:[/] {err}", highlight=False)
            _show_logs(agent)
        except KeyboardInterrupt:
            _ignore_interrupts()
            status = 130
            console.print("interrupted")
        left = clean_up(programs)
    if left:
        status = status or 1
        console.print("[bold red]left behind:[/]", *left, sep="\n  ")
    else:
        console.print("[green]everything stopped and removed; nothing is left[/]")
    return status


def run(programs: Programs, *, stay: bool, picture_file: Path | None = None) -> None:
    """Start everything, wait for the pods, check them and show them. `picture_file`: for the picture of README.md.

    `stay`: then wait until Ctrl-C; otherwise delete the machine, the core's pod and the pod with the volume, and check
    that nothing of them is left.
    """
    lab, agent, cores, image = programs.lab, programs.agent, programs.cores, programs.image
    require_space()
    image.begin()
    lab.start()
    progress.step("starting a simulated FornaxCore")
    cores.start()
    agent.flags = (*agent.flags, *(f"--fornaxcore-url={address}" for address in cores.addresses))
    progress.step("waiting for the guest's disk, which is made of Debian packages the first time")
    prepare(image.wait(progress.detail))
    first = next(iter(lab.containerds.values()))
    agent.endpoints = f"{lab.endpoints};{standby.endpoint(first)};{machine.endpoint(lab, CACHE)}"
    progress.step("starting kubeletx, with libvirt in it, and the storage agent")
    began = time.monotonic()
    agent.start()
    programs.volumes.start()
    wanted = wanted_runtimes(containers=first.name)
    watch_pods(agent, wanted, began)
    for name in lab.containerds:
        runtimes = {name, standby.RUNTIME} if name == first.name else {name}
        verify_on_runtime(lab, name, {pod for pod, runtime in wanted.items() if runtime in runtimes})
    verify_pages(agent)
    console.print(
        f"every pod is where it asked to be, {time.monotonic() - began:.1f} s after the agent started\n"
    )
    show_machine(agent, began)
    url, memory = show_standby(agent, programs.forward)
    if picture_file is not None:
        shown = pod_table({pod.metadata.name: pod for pod in agent.pods()}, wanted)
        picture.draw(picture_file, shown, standby.POD, memory)
    show_sessions(agent, cores)
    show_storage(agent)
    show_upgrades()
    show_node(agent)
    if picture_file is not None:
        picture.draw_web(picture_file.parent, agent.socket_path, MACHINE)
    if not stay:
        verify_volume_deletion(agent, programs.volumes)
        verify_session_deletion(agent, cores)
        verify_deletion(agent)
        return
    show_commands(agent, url)
    try:
        with progress.hidden():
            while agent.is_running:
                time.sleep(0.5)
    except KeyboardInterrupt:
        _ignore_interrupts()
        return
    raise DemoFailed("the agent ended without a request; its log says why")


def show_commands(agent: PrivateAgent, url: str) -> None:
    """Print what a user may try while the demo runs. `url`: of the port-forward to the pod on standby."""
    commands = {
        "kx get pods -o wide": "all pods and their runtimes",
        f"kx logs -f {MACHINE}": "what the machine's console said",
        f"kx vm console {MACHINE}": f"log in (root, {PASSWORD}); Ctrl-] leaves",
        f"kx exec {MACHINE} -- uname -a": "a program in the guest, as in a container",
        f"curl {url}": f"wakes {standby.POD} for one answer",
        f"kx describe pod {standby.POD}": "its memory, and when it was woken",
        f"kx session open {sessions.POD} --name bob --data 7": "a session without the core, which wakes the pod",
        f"curl {sessions.page(agent, 'bob')}": "the answer of its application",
        "kx session list": "sessions, with their states and pods",
        "kx fornaxcore status": "the simulated core, and what it has acknowledged",
        "kx get volumes": f"volumes of the pods, {storage.VOLUME} among them",
    }
    width = max(map(len, commands))
    console.print(
        f"\nIn a second terminal, as root, in {ROOT}:",
        f"  alias kx='.venv/bin/kubeletx --root-dir {agent.root_dir.relative_to(ROOT)}'",
        *(f"  {command:<{width}}  {text}" for command, text in commands.items()),
        f"The pods are the files in {MANIFESTS.relative_to(ROOT)}: change, add or remove some.",
        "Ctrl-C here stops and removes everything.",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def prepare(image: Path) -> None:
    """Write the agent's configuration and the pods' manifests."""
    CONFIG.write_text(machine.settings(image))
    shutil.copytree(EXAMPLES, MANIFESTS)


def require_space() -> None:
    """Raise DemoFailed if the disk below .demo/ has too little free space."""
    BASE.parent.mkdir(exist_ok=True)
    free = shutil.disk_usage(BASE.parent).free
    if free < NEEDED_BYTES:
        raise DemoFailed(f"{free >> 20} MB are free at {BASE.parent}, {NEEDED_BYTES >> 20} MB are needed")


def wanted_runtimes(*, containers: str) -> dict[str, str]:
    """Pod name (as the node shows it) → runtime that its manifest requests.

    `containers`: default of container pods.
    """
    wanted = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for pod in load_pods(path.read_bytes(), str(path)):
            named = pod.spec.runtime_service_name or pod.metadata.annotations.get(RUNTIME_SERVICE_NAME)
            default = containers if pod.spec.virtual_machine is None else machine.RUNTIME
            wanted[f"{pod.metadata.name}-{NODE_NAME}"] = named or default
    return wanted


def watch_pods(agent: PrivateAgent, wanted: dict[str, str], began: float) -> None:
    """Show the table until every wanted pod runs. Raises DemoFailed after a time limit, or if the agent ends."""
    pods: dict[str, Pod] = {}
    with _shown(lambda: pod_table(pods, wanted)) as show:
        while time.monotonic() - began <= TIMEOUT_SECONDS:
            pods = {pod.metadata.name: pod for pod in agent.pods()}
            show()
            if all(name in pods and is_settled(pods[name], runtime) for name, runtime in wanted.items()):
                return
            if not agent.is_running:
                raise DemoFailed("the agent ended without a request; its log says why")
            time.sleep(0.2)
    reasons = [
        f"{name}: {describe(pods[name]) if name in pods else 'unknown to the agent'}"
        for name, runtime in wanted.items()
        if name not in pods or not is_settled(pods[name], runtime)
    ]
    raise DemoFailed(f"not every pod runs after {TIMEOUT_SECONDS} s:\n  " + "\n  ".join(reasons))


@contextlib.contextmanager
def _shown(make: Callable[[], Table]) -> Iterator[Callable[[], None]]:
    """Context manager: yields a function that redraws the table.

    Without a terminal, the table is printed once, at the end.
    """
    if not console.is_terminal:
        try:
            yield lambda: None
        finally:
            console.print(make())
        return
    with progress.hidden(), Live(console=console, refresh_per_second=8) as live:
        yield lambda: live.update(make())


def is_settled(pod: Pod, runtime: str) -> bool:
    """True if the pod is Running and Ready on that runtime."""
    return is_ready(pod) and bound_runtime(pod) == runtime


def describe(pod: Pod) -> str:
    """Phase and runtime of the pod, and why its containers wait or its conditions are false."""
    parts = [pod.status.phase or "no phase", bound_runtime(pod) or "not bound"]
    if pod.status.message:
        parts.append(pod.status.message)
    for status in pod.status.container_statuses:
        waiting = status.state.waiting if status.state else None
        if waiting is not None:
            parts.append(f"{status.name} waits: {waiting.reason} {waiting.message or ''}".strip())
    for condition in pod.status.conditions:
        if condition.status != "True":
            parts.append(f"{condition.type}={condition.status} {condition.reason or ''}".strip())
    return ", ".join(parts)


def pod_table(pods: dict[str, Pod], wanted: dict[str, str]) -> Table:
    """Make the table of pods, one row for each wanted pod."""
    table = make_table("pods", "POD", "ASKED FOR", "RUNTIME", "STATUS", "READY", "RESTARTS", "IP")
    moment = datetime.now(UTC)
    for name, runtime in wanted.items():
        pod = pods.get(name)
        if pod is None:
            table.add_row(name, runtime, "", "[dim]unknown[/]", "", "", "")
            continue
        summary = summarise(pod, moment)
        table.add_row(
            name,
            runtime,
            bound_runtime(pod),
            f"[{'green' if is_settled(pod, runtime) else 'yellow'}]{summary.status}[/]",
            summary.ready,
            summary.restarts.partition(" ")[0],
            pod.status.pod_ip or "",
        )
    return table


def verify_on_runtime(lab: Lab, name: str, expected: set[str]) -> None:
    """Raise DemoFailed unless exactly the expected pods have a ready sandbox, by the containerd's own list."""
    with lab[name].cri() as cri:
        found = set(cri.pods())
    if found != expected:
        raise DemoFailed(f"{name} holds {sorted(found)} where {sorted(expected)} were expected")


def verify_pages(agent: PrivateAgent) -> None:
    """Raise DemoFailed unless each web pod serves the page that names its runtime."""
    for pod in agent.pods():
        if pod.metadata.labels.get("app") != "web":
            continue
        url = f"http://{pod.status.pod_ip}:8080/"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = answer.read().decode().strip()
        except OSError as err:
            raise DemoFailed(f"{pod.metadata.name} does not serve {url}: {err}") from err
        if page != f"served by {bound_runtime(pod)}":
            raise DemoFailed(f"{pod.metadata.name} serves {page!r}")


def show_machine(agent: PrivateAgent, began: float) -> None:
    """Wait for the guest, then let the node, a container and the guest fetch each other's pages over the pod network.

    Raises DemoFailed for a wrong answer.
    """
    if len(machine.emulators(agent)) != 1:
        raise DemoFailed(f"{len(machine.emulators(agent))} emulators run, and one machine is to")
    progress.step("waiting for the guest to boot; it is emulated")
    said = machine.wait_booted(agent, MACHINE, progress.detail)
    addresses = {pod.metadata.name: pod.status.pod_ip or "" for pod in agent.pods()}
    guest, web = f"http://{addresses[MACHINE]}/", f"http://{addresses[WEB]}:8080/"
    answers = [
        ("the node", MACHINE, machine.ask(addresses[MACHINE])),
        (WEB, MACHINE, machine.fetch_in(agent, WEB, guest)),
        (MACHINE, WEB, machine.fetch_in(agent, MACHINE, web)),
    ]
    console.print(
        f"the guest is up, {time.monotonic() - began:.1f} s after the agent started; its console says:"
    )
    for line in said:
        console.print(f"  [green]{line}[/]", highlight=False)
    console.print()
    table = make_table("over the pod network", "FROM", "TO", "ANSWER")
    for row in answers:
        table.add_row(*row)
    console.print(table, "")
    wrong = [row for row in answers if row[2] != ANSWERS[row[1]]]
    if wrong:
        raise DemoFailed(f"{wrong[0][0]} got {wrong[0][2]!r} from {wrong[0][1]}")


def show_standby(agent: PrivateAgent, forward: Daemon) -> tuple[str, dict[str, int]]:
    """Hibernate a pod, show its memory before and after, and wake it by a request through a port-forward.

    Returns the URL of the port-forward, and the pod's memory in bytes after each event; the pod is hibernated again.
    Raises DemoFailed for a wrong answer.
    """
    progress.step(f"hibernating {standby.POD}: it is frozen, and its memory is reclaimed")
    forward.start()
    before = standby.memory_bytes(agent)
    standby.hibernate(agent)
    after = standby.memory_bytes(agent)
    said = standby.described(agent)
    url = standby.wait_listening(forward)
    woken = standby.wake(url)
    standby.wait_hibernated(agent)
    again = standby.memory_bytes(agent)
    table = make_table(f"{standby.POD} on standby", "WHAT HAPPENS", "MEMORY", "")
    table.add_row("it runs", _mebibytes(before), "a web server that has read a 48 MiB file")
    table.add_row("kx pod standby --hibernate", _mebibytes(after), "frozen; pages of files were dropped")
    table.add_row(f"curl {url}", "", f"{woken.page!r}, {woken.seconds * 1000:.0f} ms later")
    table.add_row("the connection ends", _mebibytes(again), "hibernated again")
    console.print(table)
    console.print(
        "kx describe pod says:", f"  [green]{said}[/]", "", sep="\n", highlight=False, soft_wrap=True
    )
    if after > before / 2:
        progress.step("the rest is not pages of files; without swap it stays in memory")
    if woken.page != standby.PAGE:
        raise DemoFailed(f"{standby.POD} serves {woken.page!r}")
    return url, {
        "it runs, a 48 MiB file was read": before,
        "kubeletx pod standby --hibernate": after,
        f"answered in {woken.seconds * 1000:.0f} ms, frozen again": again,
    }


def show_sessions(agent: PrivateAgent, cores: PrivateCores) -> None:
    """Let the core create a pod, which is frozen, open a session, which wakes it, and close the session.

    Raises DemoFailed for a wrong answer, or if a command does not show session and core.
    """
    progress.step(f"a simulated FornaxCore creates {sessions.POD}, and opens a session on it")
    served = sessions.serve(agent, cores)
    table = make_table(f"{sessions.POD} and session {sessions.SESSION}", "WHAT HAPPENS", "")
    table.add_row(
        "the core creates the pod", f"frozen {served.create_seconds:.1f} s later, as it has no session"
    )
    table.add_row(
        "the core opens the session", f"woken, and Available {served.open_seconds * 1000:.0f} ms later"
    )
    table.add_row(f"curl {served.url}", f"{served.answer!r}")
    table.add_row("the core closes the session", f"frozen again {served.freeze_seconds * 1000:.0f} ms later")
    console.print(table)
    said = {command: agent.cli(*command.split()).stdout for command in ("session list", "fornaxcore status")}
    for command, lines in said.items():
        console.print(f"kx {command} says:", highlight=False)
        console.print(
            *(f"  [green]{line}[/]" for line in lines.splitlines()), sep="\n", highlight=False, soft_wrap=True
        )
    console.print()
    if served.answer != str(sessions.BEGIN + 1):
        raise DemoFailed(f"{sessions.POD} answers {served.answer!r}")
    for command, words in {"session list": "Terminated", "fornaxcore status": "registered"}.items():
        if words not in said[command]:
            raise DemoFailed(f"kubeletx {command} does not show {words}")


def show_storage(agent: PrivateAgent) -> None:
    """Write to a volume in a pod, delete the pod, and read the volume in a pod on the other containerd.

    Raises DemoFailed if the data is not there.
    """
    progress.step(
        f"{storage.WRITER} writes to volume {storage.VOLUME}, is deleted, and {storage.READER} reads it"
    )
    first = storage.run_pod(agent, MANIFESTS, storage.WRITER)
    storage.delete_pod(agent, MANIFESTS, storage.WRITER)
    second = storage.run_pod(agent, MANIFESTS, storage.READER)
    table = make_table(f"volume {storage.VOLUME}", "POD", "RUNTIME", "DATA")
    for one in (first, second):
        table.add_row(one.pod, one.runtime, one.text)
    console.print(table)
    console.print(
        "kx get volumes says:", *(f"  [green]{line}[/]" for line in second.volumes), "", sep="\n",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if second.text != f"written by {first.pod}" or second.runtime == first.runtime:
        raise DemoFailed(f"{second.pod} on {second.runtime} reads {second.text!r}")


def show_upgrades() -> None:
    """Show an OS upgrade that falls back, and one that commits, on simulated slots."""
    progress.step("a guardian (kubeletx health) tests an OS image on simulated slots, in fast motion")
    with progress.hidden():
        edge.show_upgrades(console)


def verify_volume_deletion(agent: PrivateAgent, volumes: PrivateStorageAgent) -> None:
    """Delete the pod with the volume. Raises DemoFailed if something of the volume is left but its image."""
    progress.step(f"deleting {storage.READER}-{NODE_NAME}")
    storage.delete_pod(agent, MANIFESTS, storage.READER)
    if left := storage.remains(volumes):
        raise DemoFailed(f"{storage.READER} is gone, but not {', '.join(left)}")
    console.print(f"{storage.READER}-{NODE_NAME} is gone, with mount, device and attachment")


def verify_session_deletion(agent: PrivateAgent, cores: PrivateCores) -> None:
    """Let the core delete its pod. Raises DemoFailed if something of its instance is left."""
    progress.step(f"the core deletes {sessions.POD}")
    sessions.delete_pod(agent, cores)
    if left := sessions.remains(agent):
        raise DemoFailed(f"{sessions.POD} is gone, but not {', '.join(left)}")
    console.print(f"{sessions.POD} is gone, with certificate and metadata")


def verify_deletion(agent: PrivateAgent) -> None:
    """Delete the machine's manifest. Raises DemoFailed if something of the machine is left after its end."""
    progress.step(f"deleting {MACHINE}")
    pod = agent.wait_for(MACHINE)
    began = time.monotonic()
    (MANIFESTS / "machine.yaml").unlink()
    agent.wait_gone(MACHINE)
    if left := machine.remains(agent, pod):
        raise DemoFailed(f"{MACHINE} is gone, but not {', '.join(left)}")
    console.print(f"{MACHINE} is gone, with emulator, disk and address ({time.monotonic() - began:.1f} s)")


def show_node(agent: PrivateAgent) -> None:
    """Print node conditions, runtimes and usage. Raises DemoFailed if the node is not Ready."""
    node = agent.node()
    conditions = make_table(f"node {node.metadata.name}", "CONDITION", "STATUS", "MESSAGE")
    for condition in node.status.conditions:
        if "/" not in condition.type:  # the others are for single runtimes, which the next table shows
            conditions.add_row(condition.type, condition.status, condition.message or condition.reason or "")
    console.print(conditions, "")
    usage = agent.usage()
    by_name = {runtime.name: runtime for runtime in usage.runtimes}
    table = make_table("runtimes", "RUNTIME", "TYPE", "STATUS", "VERSION", "PODS", "CPU", "MEMORY")
    for view in agent.runtimes():
        used = by_name.get(view.name)
        table.add_row(
            view.name,
            view.workload_type,
            view.status,
            view.version,
            str(view.pods),
            *_figures(used.usage if used else None),
        )
    table.add_row("all runtimes", "", "", "", "", *_figures(usage.node), style="bold")
    console.print(table)
    if usage.missing:
        console.print(f"usage is partial; no answer from {', '.join(usage.missing)}")
    if not any(
        condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions or ()
    ):
        raise DemoFailed("the node is not Ready")


def clean_up(programs: Programs) -> list[str]:
    """Stop and remove everything, ignoring Ctrl-C; returns what is left."""
    _ignore_interrupts()
    lab, agent = programs.lab, programs.agent
    progress.step("stopping and removing everything, in about ten seconds")
    programs.image.stop()
    if not lab.is_ours:
        return []
    progress.detail("the agents")
    programs.forward.stop()
    programs.volumes.stop()
    if agent.daemon is not None:
        agent.stop()
        if agent.log_path.is_file():
            LOGS.mkdir(parents=True, exist_ok=True)
            (LOGS / "kubeletx.log").write_bytes(agent.log_path.read_bytes())
    programs.cores.stop()
    progress.detail("pods, containerds, network and registry")
    lab.stop()
    return lab.leftovers()


def make_table(title: str, *headings: str) -> Table:
    """Make a table without lines for 80 columns; cells that are still too wide are folded, never cut off."""
    gap = 1 if console.width < 90 else 2
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _figures(usage: MeasuredUsage | None) -> tuple[str, str]:
    if usage is None:
        return "-", "-"
    cpu = "-" if usage.cpu_millicores is None else f"{usage.cpu_millicores}m"
    memory = "-" if usage.memory_bytes is None else f"{usage.memory_bytes / 2**20:.1f}Mi"
    return cpu, memory


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def _show_logs(agent: PrivateAgent) -> None:
    if agent.daemon is not None:
        console.print("the end of the agent's log (all logs are kept in .demo/logs):")
        console.print(agent.log_tail(30), markup=False, highlight=False)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
