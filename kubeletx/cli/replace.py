"""``kubeletx replace``: pods that exist get a new specification."""

from __future__ import annotations

import click

from .booleans import boolean, command
from .client import AgentClient
from .common import output_option, with_agent
from .manifests import send


@command(short_help="Replace pods from a file.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File, directory, or - (repeatable).",
)
@boolean("--force", help="Delete the pod and create it again, so that everything may change.")
@output_option("json", "yaml", "name")
@with_agent
def replace(agent: AgentClient, files: tuple[str, ...], force: bool, output: str | None) -> int:
    """Replace pods that exist by those of a file."""
    return send(agent, files, output, replace=True, force=force)
