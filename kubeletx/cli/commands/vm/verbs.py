"""``kubeletx vm``: operates virtual machines: power, reboot, resize, console, screenshot, definition."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from kubeletx.server.views import MachineOperation, MachineReboot, MachineSize, MachineView

from ...connection.client import MARGIN_SECONDS, AgentClient, pod_path
from ...connection.pods import BriefPod
from ...describe.sheet import Sheet
from ...options.common import duration, in_namespace, output_option, split_pod
from ...options.completing import complete_pods
from ...options.go_flags import Group, boolean
from ...output.printers import print_object, write_picture
from . import reach
from .nic import nic
from .paths import vm_path
from .snapshot import snapshot

_DONE = {
    "pause": "paused",
    "resume": "resumed",
    "suspend": "suspended",
    "start": "started",
    "stop": "stopped",
}


@click.group(cls=Group, short_help="Pause, snapshot, resize and look into virtual machines.")
def vm() -> None:
    """Manage virtual machines. NAME is the name of the pod.

    pause, resume, suspend, start and stop override the pod's powerSpec, also after a restart of the agent,
    until the opposite command or a change of powerSpec.
    """


vm.add_command(snapshot)
vm.add_command(nic)
for _verb in (reach.list_, reach.ip, reach.ssh, reach.vnc):
    vm.add_command(_verb)


def _power_command(verb: str, text: str) -> None:
    @vm.command(verb, help=text)
    @click.argument("name", shell_complete=complete_pods)
    @duration("--timeout", "60s", "How long to wait; the request remains after that.")
    @in_namespace
    def run(agent: AgentClient, name: str, timeout: float, namespace: str) -> None:
        machine = agent.wait_for(vm_path(namespace, name, f"power/{verb}"), MachineView, timeout)
        above = f" (above powerSpec {machine.overrides})" if machine.overrides else ""
        click.echo(f"vm/{machine.name} {_DONE[verb]}{above}")


_power_command("start", "Start a machine, or resume it.")
_power_command("stop", "Shut down the guest and power off the machine; its disk is kept.")
_power_command("pause", "Stop a machine's CPUs; its memory is kept.")
_power_command("suspend", "Save a machine's memory to disk and end its emulator.")
_power_command("resume", "Resume a paused or suspended machine.")


@vm.command()
@click.argument("name", shell_complete=complete_pods)
@duration("--delay", "0s", "Time to wait before the reboot.")
@boolean("--cancel", help="Cancel a delayed reboot.")
@in_namespace
def reboot(agent: AgentClient, name: str, delay: float, cancel: bool, namespace: str) -> None:
    """Reboot the guest. If the result is unknown, the agent does not repeat the reboot."""
    if cancel:
        if delay:
            raise click.UsageError("give --delay or --cancel")
        machine = agent.call("DELETE", vm_path(namespace, name, "reboot"), MachineView)
        click.echo(f"vm/{machine.name} reboot cancelled")
        return
    if delay:
        note = f"vm/{split_pod(name)} reboots in {delay:g}s; 'kubeletx vm reboot {name} --cancel' cancels it"
        click.echo(note, err=True)
    body = msgspec.json.encode(MachineReboot(delay_seconds=delay))
    machine = agent.call(
        "POST",
        vm_path(namespace, name, "reboot"),
        MachineView,
        body=body,
        timeout=delay + 3 * MARGIN_SECONDS,
    )
    click.echo(f"vm/{machine.name} rebooted")


@vm.command()
@click.argument("name", shell_complete=complete_pods)
@click.option("--cpu", default=None, metavar="AMOUNT", help="CPU limit, such as 2 or 1500m.")
@click.option("--memory", default=None, metavar="SIZE", help="Memory limit, such as 2Gi.")
@in_namespace
def resize(agent: AgentClient, name: str, cpu: str | None, memory: str | None, namespace: str) -> None:
    """Resize a running machine; 'kubeletx vm show' shows the resulting size."""
    if cpu is None and memory is None:
        raise click.UsageError("give --cpu or --memory")
    body = msgspec.json.encode(MachineSize(cpu=cpu, memory=memory))
    machine = agent.call("POST", vm_path(namespace, name, "resize"), MachineView, body=body)
    asked = ", ".join(f"{key} {value}" for key, value in sorted(machine.limits.items()))
    click.echo(f"vm/{machine.name} is to have {asked}")


@vm.command()
@click.argument("name", shell_complete=complete_pods)
@output_option("json", "yaml")
@in_namespace
def show(agent: AgentClient, name: str, output: str | None, namespace: str) -> None:
    """Show the state of a machine, its requested state, and operations that are not repeated."""
    machine = agent.get(vm_path(namespace, name), MachineView)
    if output is not None:
        print_object(machine, output)
        return
    sheet = Sheet()
    sheet.add("Name", machine.name).add("Namespace", machine.namespace).add("Runtime", machine.runtime)
    sheet.add("Machine", machine.machine).add("Power", machine.power_state)
    wanted = f"{machine.power} (by command, above powerSpec {machine.overrides})"
    sheet.add("Wanted", wanted if machine.overrides else machine.power)
    if machine.problem:
        sheet.add("Problem", machine.problem)
    sheet.add_map("Limits", machine.limits, ": ").add_map("Granted", machine.granted, ": ")
    rows = [_operation(operation) for operation in machine.operations]
    sheet.table("Operations", ("Begun", "Verb", "Outcome", "Message"), rows)
    for line in sheet.lines():
        click.echo(line)


def _operation(operation: MachineOperation) -> list[str]:
    return [
        f"{operation.begun_at:%Y-%m-%d %H:%M:%S}",
        f"{operation.verb} {operation.detail}".strip(),
        operation.outcome,
        operation.message,
    ]


@vm.command()
@click.argument("name", shell_complete=complete_pods)
@in_namespace
def console(agent: AgentClient, name: str, namespace: str) -> int:
    """Connect to a machine's serial console, as 'kubeletx attach -it'. Ctrl-] leaves it."""
    from ...connection.remote import run_in

    agent.get(vm_path(namespace, name), MachineView)
    pod = agent.get(pod_path(namespace, split_pod(name)), BriefPod)
    click.echo("If you don't see a prompt, try pressing enter.", err=True)
    return run_in(agent, "attach", pod, "", (), stdin=True, tty=True)


@vm.command()
@click.argument("name", shell_complete=complete_pods)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write to this file; by default NAME.png. '-' is standard output.",
)
@boolean("--force", help="Overwrite the file.")
@in_namespace
def screenshot(agent: AgentClient, name: str, file: Path | None, force: bool, namespace: str) -> None:
    """Write a machine's display to a PNG file."""
    target = file if file is not None else Path(f"{split_pod(name)}.png")
    picture = b"".join(agent.chunks(vm_path(namespace, name, "screenshot"), {}))
    write_picture(picture, target, f"vm/{split_pod(name)}", force=force)


@vm.command("dump-xml")
@click.argument("name", shell_complete=complete_pods)
@in_namespace
def dump_xml(agent: AgentClient, name: str, namespace: str) -> None:
    """Print a machine's definition in its runtime."""
    for piece in agent.chunks(vm_path(namespace, name, "definition"), {}):
        click.echo(piece, nl=False)
