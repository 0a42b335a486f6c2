"""``kubeletx health``, where the program was not started by `kubeletx.cli.start`: help, completion, older scripts."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from ..options.go_flags import command


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the verb; its own arguments are not completed."""
    from kubeletx.health.main import verbs

    if ctx.params.get("arguments"):
        return []
    return [CompletionItem(name, help=text) for name, text in verbs().items() if name.startswith(incomplete)]


@command(
    short_help="Run this node's guardian: watchdog, OS upgrades, reboots.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete)
def health(arguments: tuple[str, ...]) -> int:
    """Run the guardian of this node, or ask the running one. `kubeletx health --help` shows its flags and verbs."""
    from kubeletx.health.main import main

    return main(arguments)
