"""``kubeletx health`` and ``remedy``, where the program was not started by `kubeletx.cli.start`: help, completion, older scripts."""

from __future__ import annotations

import importlib
from typing import Any

import click
from click.shell_completion import CompletionItem

from ...options.go_flags import command


def _process(name: str, text: str) -> click.Command:
    """Make a command that hands its arguments over to the command line of the process ``kubeletx.NAME``."""

    def module() -> Any:
        return importlib.import_module(f"kubeletx.{name}.main")

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the verb; its own arguments are not completed."""
        if ctx.params.get("arguments"):
            return []
        verbs = module().verbs().items()
        return [CompletionItem(verb, help=line) for verb, line in verbs if verb.startswith(incomplete)]

    def run(arguments: tuple[str, ...]) -> int:
        code: int = module().main(arguments)
        return code

    run.__name__, run.__doc__ = name, f"{text} `kubeletx {name} --help` shows its flags and verbs."
    made: click.Command = command(
        short_help=text,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete)(run))
    return made


health = _process("health", "Run this node's guardian: watchdog, OS upgrades, reboots.")
remedy = _process("remedy", "Run the cluster's node remedy: fence, repair and bring back sick nodes.")
