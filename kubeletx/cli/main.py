"""``kubeletx``: without a subcommand it runs the agent; with a subcommand it is a client of the running agent.

A subcommand connects to its agent by ``<root-dir>/kubeletx.sock``. Flags of the agent must precede the subcommand. Only
``config view`` and ``plugins`` accept them: they then show what an agent started with these flags would have.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kubeletx.agent.config.kubelet_words import KUBELET

from .commands import COMMANDS, INSTEAD, overview
from .options.exit_codes import ExitCode
from .options.go_flags import boolean, refuse_detached_value, spell_out, spellings_of
from .options.group import ErrorGroup
from .options.settings import Invocation, start_options


class MainGroup(ErrorGroup):
    """click group of the program itself: accepts the agent's flags, then an optional subcommand.

    The agent's flags take a third of a second of a slow machine to make, and no command uses them: they are added when
    an argument before the command is one of them.
    """

    _has_agent_flags = False

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one screen: the commands by purpose. As a kubelet, the program has the agent's flags in its help."""
        agent = self.get_command(ctx, "agent") if ctx.params.get("as_kubelet") else None
        if agent is None:
            formatter.write(overview())
        else:
            agent.format_help(click.Context(agent, info_name="kubelet"), formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, print the help and exit.

        Raises UsageError for an unknown flag, with a hint at the right flag or configuration field, and for a boolean
        flag whose value is an argument of its own.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(ExitCode.OK)
        try:
            return self._parse(ctx, list(args))
        except click.NoSuchOption:
            from .options.agent_flags import explain_unknown, with_agent_flags

        if not self._has_agent_flags:
            with_agent_flags(self)
            self._has_agent_flags = True
        try:
            return self._parse(ctx, list(args))
        except click.NoSuchOption as error:
            raise click.UsageError(explain_unknown(error.option_name), ctx) from None

    def _parse(self, ctx: click.Context, args: list[str]) -> list[str]:
        spellings = spellings_of(self.params)
        refuse_detached_value(args, spellings)
        return super().parse_args(ctx, spell_out(args, spellings, only_front=True))


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(_version(as_kubelet=ctx.params.get("as_kubelet", False)))
        ctx.exit(ExitCode.OK)


def _version(*, as_kubelet: bool) -> str:
    """Return the line that ``--version`` prints. `as_kubelet`: as a kubelet prints it, since kubeadm parses that."""
    from kubeletx import __version__

    if not as_kubelet:
        return f"kubeletx {__version__}"
    from kubeletx.node.info import kubelet_version

    return f"Kubernetes {kubelet_version(__version__)}"


@click.group(
    cls=MainGroup,
    lazy=COMMANDS,
    instead=INSTEAD,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    options_metavar="[FLAGS]",
    subcommand_metavar="[COMMAND [ARGS]...]",
)
@start_options
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of pods, for the command that follows.",
)
@boolean(
    "--version",
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_context
def cli(
    ctx: click.Context,
    /,
    as_kubelet: bool,
    root_dir: Path | None,
    config_file: Path | None,
    config_dir: Path | None,
    namespace: str | None,
    **flags: Any,
) -> int:
    """Run the agent with its flags, or a command."""
    ctx.obj = Invocation(
        root_dir=root_dir,
        config_file=config_file,
        config_dir=config_dir,
        flags=_given(flags),
        namespace=namespace,
        as_kubelet=as_kubelet,
    )
    if ctx.invoked_subcommand is None:
        if namespace is not None:
            raise click.UsageError("--namespace is for commands, such as 'kubeletx -n NAME get pods'")
        from .options.run import run

        return run(ctx.obj)
    if ctx.invoked_subcommand not in ("agent", "config", "plugin", "plugins"):
        ctx.obj.refuse_agent_flags()
    return ExitCode.OK


def _given(values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    if not any(values.values()):
        return {}
    from .options.agent_flags import given

    return given(values)


def main() -> None:
    """Entry point of the program. If the program is called by the name kubelet, adds the flag ``--as-kubelet``."""
    is_kubelet = Path(sys.argv[0]).name == KUBELET
    cli.main(args=["--as-kubelet", *sys.argv[1:]] if is_kubelet else sys.argv[1:], prog_name="kubeletx")
