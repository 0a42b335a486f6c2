"""``kubeletx agent``: runs the agent, as ``kubeletx FLAGS`` does without a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...options.agent_flags import explain_unknown, given, with_agent_flags
from ...options.go_flags import Command
from ...options.settings import Invocation, start_options


class _AgentCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the flags. Raises UsageError for an unknown one, with a hint at the right flag or field."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(explain_unknown(error.option_name), ctx) from None


@click.command(
    "agent", cls=_AgentCommand, short_help="Run the agent of this node.", options_metavar="[FLAGS]"
)
@start_options
@with_agent_flags
@click.pass_obj
def agent(
    before: Invocation,
    /,
    as_kubelet: bool,
    root_dir: Path | None,
    config_file: Path | None,
    config_dir: Path | None,
    **flags: Any,
) -> int:
    """Run the agent of this node until it is ended. Flags may also precede 'agent'.

    \b
      kubeletx agent --container-runtime-endpoint container:containerd:unix:///run/containerd/containerd.sock
    """
    from ...options.run import run

    return run(
        before._replace(
            root_dir=root_dir or before.root_dir,
            config_file=config_file or before.config_file,
            config_dir=config_dir or before.config_dir,
            flags={**before.flags, **given(flags)},
            as_kubelet=as_kubelet or before.as_kubelet,
        )
    )
