"""``kubeletx completion``: prints the script with which a shell completes commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..options.go_flags import command


@command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: source <(kubeletx completion bash)
    zsh:  source <(kubeletx completion zsh)
    fish: kubeletx completion fish | source
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(completion_class(ctx.find_root().command, {}, "kubeletx", "_KUBELETX_COMPLETE").source())
