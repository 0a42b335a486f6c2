"""``kubeletx apply``: pods of a source of its own, kept over restarts."""

from __future__ import annotations

import click

from .booleans import command
from .client import AgentClient
from .common import output_option, with_agent
from .manifests import send


@command(short_help="Create or change pods from a file.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File, directory, or - (repeatable).",
)
@output_option("json", "yaml", "name")
@with_agent
def apply(agent: AgentClient, files: tuple[str, ...], output: str | None) -> int:
    """Create the pods of a file, or change what may be changed in them.

    What may not be changed needs 'kubeletx replace --force'.
    """
    return send(agent, files, output)
