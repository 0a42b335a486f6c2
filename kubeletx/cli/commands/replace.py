"""``kubeletx replace``: gives existing pods a new specification."""

from __future__ import annotations

import click

from ..connection.client import AgentClient
from ..options.common import output_option, with_agent
from ..options.go_flags import boolean, command
from ..options.manifests import manifest_options, send


@command(short_help="Replace pods from a file.")
@manifest_options
@boolean("--force", help="Delete the pod and create it again, which allows all changes.")
@output_option("json", "yaml", "name")
@with_agent
def replace(
    agent: AgentClient,
    files: tuple[str, ...],
    force: bool,
    output: str | None,
    validate: str,
    dry_run: str,
) -> int:
    """Replace existing pods by the pods of a file."""
    if force and dry_run:
        raise click.UsageError("--dry-run can not be used when --force is set")
    return send(agent, files, output, validate=validate, dry_run=dry_run, replace=True, force=force)
