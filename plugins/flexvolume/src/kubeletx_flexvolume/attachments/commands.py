"""Commands of an administrator: ``scan``, ``attachments``, ``release`` and ``manifests`` of ``kubeletx-flexvolume``.

Everything but click is imported by the command that needs it. Results go to standard output, logs to standard error.
Exit codes are the same as kubeletx's: 1 if something failed, 2 if an option is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from .stores import Stores

T = TypeVar("T")

DEFAULT_RECORDS: Final = Path("/var/lib/kubeletx-storage/records/records.db")


def add_commands(group: click.Group) -> None:
    """Add the commands to the program's group."""
    for command in (scan, attachments, release, manifests):
        group.add_command(command)


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the records are."""
    path = click.Path(path_type=Path, dir_okay=False)
    function = click.option(
        "--records",
        type=path,
        help=f"SQLite file with the records of this machine. [default: {DEFAULT_RECORDS}]",
    )(function)
    return click.option(
        "--storage-kubeconfig",
        type=path,
        help="Kubeconfig of the storage identity; the records are then custom resources of its cluster.",
    )(function)


@click.command(short_help="Remove the entries of nodes that are gone.")
@store_options
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table")
def scan(storage_kubeconfig: Path | None, records: Path | None, dry_run: bool, output: str) -> None:
    """Remove entries of nodes that are gone, were made again, or have restarted."""

    async def work(stores: Stores) -> None:
        from .stale import Scanner
        from .views import print_report

        report = await Scanner(stores).scan(dry_run=dry_run)
        print_report(report, as_json=output == "json")
        if report.problems:
            raise click.ClickException("; ".join(report.problems[:5]))

    _run(storage_kubeconfig, records, work)


@click.command()
@store_options
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table")
@click.argument("volumes", nargs=-1, metavar="[VOLUME]...")
def attachments(
    storage_kubeconfig: Path | None, records: Path | None, output: str, volumes: Sequence[str]
) -> None:
    """Show which pods have which volumes attached."""

    async def work(stores: Stores) -> None:
        from .views import COLUMNS, entry_rows, print_rows

        problems: list[str] = []
        rows = await entry_rows(stores.attachments, volumes, problems)
        print_rows(rows, COLUMNS, as_json=output == "json")
        if problems:
            raise click.ClickException("; ".join(problems[:5]))

    _run(storage_kubeconfig, records, work)


@click.command(short_help="Remove a node's entries without a proof.")
@store_options
@click.option("--node", required=True, help="Node whose entries are removed.")
@click.option("--yes", is_flag=True, help="Confirm that the node does not write to the volume any more.")
@click.argument("volume")
def release(storage_kubeconfig: Path | None, records: Path | None, node: str, yes: bool, volume: str) -> None:
    """Remove the entries of a node from the record of VOLUME, without a proof that the node is gone.

    Another node may attach the volume then. If both write to it, its data is destroyed.
    """
    if not yes:
        raise click.UsageError(
            f"make sure that node {node} is off, or cut off from the storage, and give --yes: another node may attach "
            f"volume {volume} then, and two nodes that write to it destroy its data"
        )

    async def work(stores: Stores) -> None:
        from .views import release_volume

        removed = await release_volume(stores, volume, node)
        click.echo(
            f"removed {removed} {'entry' if removed == 1 else 'entries'} of node {node} from volume {volume}"
        )

    _run(storage_kubeconfig, records, work)


@click.command(short_help="Print the manifests for a cluster.")
@click.option("--namespace", default="kubeletx-storage", help="Namespace of the agents.")
@click.option(
    "--cluster-resource",
    "resources",
    multiple=True,
    metavar="GROUP/VERSION/PLURAL",
    help="Custom resource of storage clusters, such as ceph.rook.io/v1/cephclusters. May be given several times.",
)
def manifests(namespace: str, resources: Sequence[str]) -> None:
    """Print the custom resources, and the identity with its rights, that the agents need in a cluster."""
    from .definitions import manifests_text

    with user_errors():
        click.echo(manifests_text(namespace, resources), nl=False)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors into messages of one line; an option that is wrong is an error of usage."""
    from kubeletx.api import InvalidConfig, KubeletxError

    try:
        yield
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    except KubeletxError as error:
        raise click.ClickException(str(error)) from error


def _run(kubeconfig: Path | None, records: Path | None, work: Callable[[Stores], Awaitable[None]]) -> None:
    """Open the stores, do `work` with them, and close them."""
    import asyncio
    import logging
    import sys

    import structlog

    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
    with user_errors():
        asyncio.run(_with_stores(kubeconfig, records, work))


async def _with_stores(
    kubeconfig: Path | None, records: Path | None, work: Callable[[Stores], Awaitable[None]]
) -> None:
    import os

    from kubeletx.api import InvalidConfig, SystemClock

    from .stores import open_stores

    if kubeconfig is None and records is None:
        records = DEFAULT_RECORDS
    if records is not None and not records.exists():
        raise InvalidConfig(
            field="--records",
            problem=f"{records} does not exist",
            fix="give the agent's --records, or its --storage-kubeconfig",
        )
    stores = open_stores(
        kubeconfig=kubeconfig, records=records, node=os.uname().nodename, clock=SystemClock()
    )
    try:
        await work(stores)
    finally:
        await stores.close()
