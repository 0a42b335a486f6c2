"""``kubeletx vm nic``: attaches, detaches and lists network interfaces of a machine."""

from __future__ import annotations

import click
import msgspec

from kubeletx.server.views import NicRequest, NicView

from ...connection.client import AgentClient
from ...options.common import in_namespace, output_option
from ...options.completing import complete_pods
from ...options.go_flags import Group, boolean
from ...output.printers import Column, print_list
from .paths import item_path, vm_path

_COLUMNS = (
    Column("NAME", lambda row, _: row.name),
    Column("STATE", lambda row, _: row.state, state=True),
    Column("MAC", lambda row, _: row.mac),
    Column("NETWORK", lambda row, _: row.network),
    Column("PORT", lambda row, _: row.port_id),
    Column("IPS", lambda row, _: ",".join(row.ips)),
    Column("MESSAGE", lambda row, _: row.message),
)


@click.group(cls=Group, short_help="Attach, detach and list network interfaces.")
def nic() -> None:
    """Manage network interfaces of a machine. eth0 belongs to the pod network and cannot be removed."""


@nic.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("nic_name", metavar="NIC")
@click.option("--network", default=None, metavar="NAME", help="Network or subnet to join.")
@click.option("--port-id", default=None, metavar="ID", help="Existing port to use.")
@click.option("--ip", default=None, metavar="ADDRESS", help="Fixed address.")
@click.option("--tag", default=None, metavar="TEXT", help="Tag that the guest can see.")
@boolean("--ipv6", help="With an IPv6 address.")
@in_namespace
def attach(
    agent: AgentClient,
    name: str,
    nic_name: str,
    network: str | None,
    port_id: str | None,
    ip: str | None,
    tag: str | None,
    ipv6: bool,
    namespace: str,
) -> None:
    """Plug a network interface into a machine; it is kept after a restart."""
    wanted = NicRequest(
        name=nic_name, subnet_name=network, port_id=port_id, ip_address=ip, tag=tag, ipv6_enabled=ipv6 or None
    )
    path = vm_path(namespace, name, "nics")
    nics = agent.call("POST", path, tuple[NicView, ...], body=msgspec.json.encode(wanted))
    now = next((item for item in nics if item.name == nic_name), None)
    if now is None or now.state != "attached":
        why = f": {now.message}" if now is not None and now.message else ""
        click.echo(f"nic/{nic_name} is requested, but not attached yet{why}")
    else:
        click.echo(f"nic/{nic_name} attached")


@nic.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("nic_name", metavar="NIC")
@in_namespace
def detach(agent: AgentClient, name: str, nic_name: str, namespace: str) -> None:
    """Unplug a network interface from a machine; no error if it does not exist."""
    path = item_path(namespace, name, "nics", nic_name)
    nics = agent.call("DELETE", path, tuple[NicView, ...])
    going = any(item.name == nic_name for item in nics)
    click.echo(f"nic/{nic_name} {'is being detached' if going else 'detached'}")


@nic.command("list")
@click.argument("name", shell_complete=complete_pods)
@output_option("json", "yaml", "name")
@in_namespace
def list_(agent: AgentClient, name: str, output: str | None, namespace: str) -> None:
    """List a machine's network interfaces, including requested interfaces that are not attached yet."""
    nics = agent.items(vm_path(namespace, name, "nics"), NicView)
    print_list(nics, output, "nic", _COLUMNS)
