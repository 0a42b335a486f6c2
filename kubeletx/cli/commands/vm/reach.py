"""``kubeletx vm list``, ``ip``, ``ssh`` and ``vnc``: which machines there are, and how to reach one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Final

import click

from kubeletx.api import Conflict
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.server.views import MachineView, NicView

from ...connection.client import AgentClient, pod_path
from ...connection.remote import is_machine
from ...options.common import in_namespace, output_option, split_pod
from ...options.completing import complete_pods
from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command
from ...output.columns import POD
from ...output.kinds import kind_of
from ...output.printers import Column, print_list
from .paths import vm_path

_ADDRESS: Final = Column("IP", lambda pod, _: ",".join(_pod_ips(pod)))
_SHOWN: Final = ("NAME", "STATUS", "AGE", "RUNTIME")
_COLUMNS: Final = (*(column for column in POD if column.title in _SHOWN), _ADDRESS)
_DISPLAY: Final = re.compile(r"<graphics\b[^>]*>")
_ATTRIBUTE: Final = re.compile(r"""(\w+)=['"]([^'"]*)['"]""")


@command("list", short_help="Show the virtual machines.")
@boolean("-A", "--all-namespaces", help="All namespaces.")
@output_option("json", "yaml", "name")
@in_namespace
def list_(agent: AgentClient, all_namespaces: bool, output: str | None, namespace: str) -> None:
    """Show the virtual machines with their states and addresses."""
    pods = kind_of("pods").selected(agent, "", None if all_namespaces else namespace)
    machines = tuple(filter(is_machine, pods))
    spaces = [Column("NAMESPACE", lambda pod, _: pod.namespace)] if all_namespaces else []
    print_list(machines, output, "vm", (*spaces, *_COLUMNS), PodList(items=machines))


@command(short_help="Print the addresses of a machine.")
@click.argument("name", shell_complete=complete_pods)
@in_namespace
def ip(agent: AgentClient, name: str, namespace: str) -> None:
    """Print the addresses of a machine, one a line."""
    for address in addresses(agent, namespace, name):
        click.echo(address)


@command(short_help="Open a shell in a machine by ssh.")
@click.argument("name", metavar="[USER@]NAME", shell_complete=complete_pods)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@in_namespace
def ssh(agent: AgentClient, name: str, arguments: tuple[str, ...], namespace: str) -> None:
    """Run the program ssh with the machine's first address. ARGUMENTS after -- are its own.

    The guest needs an ssh server and your key; 'kubeletx vm console' needs neither.
    """
    user, at, machine = name.rpartition("@")
    address = addresses(agent, namespace, machine)[0]
    program = shutil.which("ssh")
    if program is None:
        raise Conflict(f"there is no program ssh here; connect to {address} from a machine that has one")
    os.execv(program, ["ssh", f"{user}{at}{address}", *arguments])


@command(short_help="Print the address of a machine's VNC display.")
@click.argument("name", shell_complete=complete_pods)
@in_namespace
def vnc(agent: AgentClient, name: str, namespace: str) -> int:
    """Print the address of the VNC display that a machine's definition has, for a viewer on this node."""
    text = b"".join(agent.chunks(vm_path(namespace, name, "definition"), {})).decode()
    for tag in _DISPLAY.findall(text):
        display = dict(_ATTRIBUTE.findall(tag))
        if display.get("type") != "vnc":
            continue
        if "socket" in display:
            click.echo(f"vnc+unix://{display['socket']}")
            return ExitCode.OK
        if display.get("port", "-1") != "-1":
            host = display.get("listen", "127.0.0.1")
            click.echo(f"vnc://{f'[{host}]' if ':' in host else host}:{display['port']}")
            return ExitCode.OK
    machine = split_pod(name)
    raise Conflict(
        f"machine {namespace}/{machine} has no VNC display that runs; 'kubeletx vm console {machine}' is its serial "
        f"console, and 'kubeletx vm screenshot {machine}' writes a picture of its screen"
    )


def addresses(agent: AgentClient, namespace: str, name: str) -> Sequence[str]:
    """Return the addresses of a machine: of its pod, then of its interfaces. Raises Conflict if it has none."""
    agent.get(vm_path(namespace, name), MachineView)
    nics = agent.items(vm_path(namespace, name, "nics"), NicView)
    known = _pod_ips(agent.get(pod_path(namespace, split_pod(name)), Pod))
    found = tuple(
        dict.fromkeys([*known, *(address.partition("/")[0] for nic in nics for address in nic.ips)])
    )
    if not found:
        raise Conflict(
            f"machine {namespace}/{split_pod(name)} has no address yet; 'kubeletx vm nic list' shows its interfaces, "
            "'kubeletx vm console' its serial console"
        )
    return found


def _pod_ips(pod: Pod) -> list[str]:
    listed = [each.ip for each in pod.status.pod_ips]
    return listed or ([pod.status.pod_ip] if pod.status.pod_ip else [])
