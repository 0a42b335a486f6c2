"""``kubeletx vm snapshot``: creates, lists, restores and deletes snapshots of a machine."""

from __future__ import annotations

import click
import msgspec

from kubeletx.kube.text.human import age, human_bytes
from kubeletx.server.views import MachineView, SnapshotRequest, SnapshotView

from ...connection.client import AgentClient
from ...options.common import in_namespace, output_option
from ...options.completing import complete_pods
from ...options.go_flags import Group, boolean
from ...output.printers import Column, print_list
from ...output.progress import ProgressLine
from .paths import item_path, vm_path

LONGEST_SECONDS = 900.0
_COLUMNS = (
    Column("NAME", lambda row, _: row.name),
    Column("MEMORY", lambda row, _: "yes" if row.with_memory else "no"),
    Column("CURRENT", lambda row, _: "*" if row.current else ""),
    Column("PARENT", lambda row, _: row.parent),
    Column("SIZE", lambda row, _: human_bytes(row.size_bytes)),
    Column("AGE", lambda row, now: age(row.created_at, now)),
)


@click.group(cls=Group, short_help="Create, list, restore and delete snapshots.")
def snapshot() -> None:
    """Manage snapshots of a machine's disks, optionally with its memory."""


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@boolean("--memory", help="Include the state of the running guest.")
@in_namespace
def create(agent: AgentClient, name: str, snapshot_name: str, memory: bool, namespace: str) -> None:
    """Make a snapshot."""
    body = msgspec.json.encode(SnapshotRequest(name=snapshot_name, memory=memory))
    path = vm_path(namespace, name, "snapshots")
    with ProgressLine(f"creating snapshot/{snapshot_name}"):
        made = agent.call("POST", path, SnapshotView, body=body, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{made.name} created" + (" with memory" if made.with_memory else ""))


@snapshot.command("list")
@click.argument("name", shell_complete=complete_pods)
@output_option("json", "yaml", "name")
@in_namespace
def list_(agent: AgentClient, name: str, output: str | None, namespace: str) -> None:
    """List a machine's snapshots, oldest first."""
    snapshots = agent.items(vm_path(namespace, name, "snapshots"), SnapshotView)
    print_list(snapshots, output, "snapshot", _COLUMNS)


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@in_namespace
def restore(agent: AgentClient, name: str, snapshot_name: str, namespace: str) -> None:
    """Restore a machine from a snapshot; later changes are lost."""
    path = item_path(namespace, name, "snapshots", snapshot_name, "restore")
    with ProgressLine(f"restoring snapshot/{snapshot_name}"):
        agent.call("POST", path, MachineView, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{snapshot_name} restored")


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@in_namespace
def delete(agent: AgentClient, name: str, snapshot_name: str, namespace: str) -> None:
    """Delete a snapshot; the machine does not change."""
    path = item_path(namespace, name, "snapshots", snapshot_name)
    with ProgressLine(f"deleting snapshot/{snapshot_name}"):
        agent.call("DELETE", path, MachineView, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{snapshot_name} deleted")
