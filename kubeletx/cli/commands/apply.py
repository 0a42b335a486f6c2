"""``kubeletx apply``: creates or changes pods, which the agent stores, so that they exist again after a restart."""

from __future__ import annotations

from ..connection.client import AgentClient
from ..options.common import output_option, with_agent
from ..options.go_flags import command
from ..options.manifests import manifest_options, send


@command(short_help="Create or change pods from a file.")
@manifest_options
@output_option("json", "yaml", "name")
@with_agent
def apply(agent: AgentClient, files: tuple[str, ...], output: str | None, validate: str, dry_run: str) -> int:
    """Create the pods of a file, or change existing ones.

    Fields that cannot be changed need 'kubeletx replace --force'.
    """
    return send(agent, files, output, validate=validate, dry_run=dry_run)
