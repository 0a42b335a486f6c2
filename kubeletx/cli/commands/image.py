"""``kubeletx image``: manages images of the runtimes' stores; pulls show their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from kubeletx.api import Internal
from kubeletx.kube.text.human import human_bytes
from kubeletx.server.views import PruneResult, PullUpdate

from ..connection.client import AgentClient
from ..options.common import with_agent
from ..options.completing import complete_runtimes
from ..options.go_flags import Group, boolean
from ..output.progress import ProgressLine
from .get import list_command

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group, short_help="List, pull, remove and prune images.")
def image() -> None:
    """List, pull, remove and prune images. Each store is shown once, whichever runtimes use it."""


def _runtime_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--runtime", default=None, metavar="NAME", shell_complete=complete_runtimes, help=text
    )


@image.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@_runtime_option("Into this runtime's store; by default the default container runtime's.")
@boolean("-q", "--quiet", help="Show no progress.")
@with_agent
def pull(agent: AgentClient, images: tuple[str, ...], runtime: str | None, quiet: bool) -> None:
    """Pull images. Ctrl-C stops the pull."""
    for name in images:
        last = None
        with ProgressLine(name, quiet=quiet) as line:
            for item in agent.lines("POST", "/v1/images/pull", {"image": name, "runtime": runtime}):
                last = msgspec.json.decode(item.object, type=PullUpdate)
                line.show(f"{name} {last.message}".rstrip(), last.done_bytes, last.total_bytes)
        if last is None or not last.ref:
            raise Internal(
                f"the agent ended the pull of {name} without a result; see its log, and pull again"
            )
        click.echo(f"{name} pulled into {last.runtime}: {last.ref}")


class _Removed(msgspec.Struct, frozen=True):
    stores: tuple[str, ...]


@image.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@_runtime_option("Only from this runtime's store.")
@with_agent
def rm(agent: AgentClient, images: tuple[str, ...], runtime: str | None) -> None:
    """Remove images that no pod uses, by tag, digest or id."""
    for name in images:
        removed = agent.call("DELETE", "/v1/images", _Removed, {"image": name, "runtime": runtime})
        click.echo(f"Deleted: {name} ({', '.join(removed.stores)})")


@image.command()
@_runtime_option("Only in this runtime's store.")
@boolean("--all", "every", help="Also images that others pulled.")
@with_agent
def prune(agent: AgentClient, runtime: str | None, every: bool) -> None:
    """Remove what kubeletx pulled and no pod uses."""
    result = agent.call("POST", "/v1/images/prune", PruneResult, {"runtime": runtime, "all": every})
    for item in result.removed:
        click.echo(f"Deleted: {item.tags[0] if item.tags else item.id} ({item.store})")
    click.echo(f"Freed {human_bytes(result.freed_bytes)}")
    if result.missing:
        click.echo(
            f"Warning: no answer from {', '.join(result.missing)}; their stores were left alone", err=True
        )


list_command(image, "images")
