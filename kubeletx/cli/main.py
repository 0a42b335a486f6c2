"""``kubeletx``: without a subcommand it runs the agent; with a subcommand it is a client of the running agent.

A subcommand connects to its agent by ``<root-dir>/kubeletx.sock``. Flags of the agent must precede the subcommand. Only
``config view`` and ``plugins`` accept them: they then show what an agent started with these flags would have.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kubeletx.agent.config.kubelet_words import KUBELET, KUBELET_ROOT

from .options.agent_flags import explain_unknown, given, with_agent_flags
from .options.exit_codes import ExitCode
from .options.go_flags import boolean, refuse_detached_value, spell_out, spellings_of
from .options.group import ErrorGroup, Lazy
from .options.settings import DEFAULT_ROOT, Invocation

COMMANDS = {
    "get": Lazy("kubeletx.cli.commands.get:get", "Show pods, runtimes, the node, images, volumes or events."),
    "describe": Lazy(
        "kubeletx.cli.commands.describe:describe",
        "Show everything about a pod, the node, a runtime or a volume.",
    ),
    "logs": Lazy("kubeletx.cli.commands.logs:logs", "Print the log of a container."),
    "exec": Lazy("kubeletx.cli.commands.exec:exec_", "Run a command in a container."),
    "attach": Lazy("kubeletx.cli.commands.attach:attach", "Join the streams of a running container."),
    "port-forward": Lazy("kubeletx.cli.commands.port_forward:port_forward", "Forward local ports to a pod."),
    "apply": Lazy("kubeletx.cli.commands.apply:apply", "Create or change pods from a file."),
    "replace": Lazy("kubeletx.cli.commands.replace:replace", "Replace pods from a file."),
    "delete": Lazy("kubeletx.cli.commands.delete:delete", "Delete pods."),
    "top": Lazy("kubeletx.cli.commands.top:top", "Show usage of pods, runtimes or the node."),
    "runtime": Lazy("kubeletx.cli.commands.runtime:runtime", "Add, remove, cordon and describe runtimes."),
    "drain": Lazy("kubeletx.cli.commands.drain:drain", "End all pods of the node; new ones are refused."),
    "pod": Lazy("kubeletx.cli.commands.pod:pod", "Freeze, hibernate and wake pods."),
    "session": Lazy(
        "kubeletx.cli.commands.session.verbs:session", "Open, list, describe, close and measure sessions."
    ),
    "vm": Lazy(
        "kubeletx.cli.commands.vm.verbs:vm", "Pause, snapshot, resize and look into virtual machines."
    ),
    "fornaxcore": Lazy(
        "kubeletx.cli.commands.fornaxcore.status:fornaxcore", "Show the node's connections to FornaxCores."
    ),
    "health": Lazy(
        "kubeletx.cli.commands.processes:health", "Run this node's guardian: watchdog, OS upgrades, reboots."
    ),
    "remedy": Lazy(
        "kubeletx.cli.commands.processes:remedy",
        "Run the cluster's node remedy: fence, repair and bring back sick nodes.",
    ),
    "image": Lazy("kubeletx.cli.commands.image:image", "List, pull, remove and prune images."),
    "plugin": Lazy(
        "kubeletx.cli.commands.plugin.verbs:plugin", "Write, check, install, list and remove plugins."
    ),
    "plugins": Lazy("kubeletx.cli.commands.plugins:plugins", "Show the plugins that were found."),
    "panel": Lazy("kubeletx.cli.commands.panel:panel", "Show panels of plugins."),
    "fornaxcore-sim": Lazy(
        "kubeletx.cli.commands.fornaxcore.simulator:simulator", "Run a simulated FornaxCore."
    ),
    "config": Lazy("kubeletx.cli.commands.config:config", "Show the effective configuration."),
    "version": Lazy(
        "kubeletx.cli.commands.version:version", "Show the versions of this command and of the agent."
    ),
    "completion": Lazy(
        "kubeletx.cli.commands.completion:completion", "Print the completion script of a shell."
    ),
}


INSTEAD = {
    "run": "kubeletx apply -f FILE",
    "create": "kubeletx apply -f FILE",
    "edit": "kubeletx replace -f FILE",
    "rm": "kubeletx delete pod NAME",
    "ps": "kubeletx get pods",
    "images": "kubeletx image list",
    "pull": "kubeletx image pull IMAGE",
    "cordon": "kubeletx runtime cordon NAME",
    "uncordon": "kubeletx runtime uncordon NAME",
}
"""Command to use for a command of kubectl, crictl or docker that kubeletx lacks."""


class MainGroup(ErrorGroup):
    """click group of the program itself: accepts the agent's flags, then an optional subcommand."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options in the help, since the agent has many flags."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, print the help and exit.

        Raises UsageError for an unknown flag, with a hint at the right flag or configuration field, and for a boolean
        flag whose value is an argument of its own.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(ExitCode.OK)
        spellings = spellings_of(self.params)
        refuse_detached_value(args, spellings)
        try:
            return super().parse_args(ctx, spell_out(args, spellings, only_front=True))
        except click.NoSuchOption as error:
            raise click.UsageError(explain_unknown(error.option_name), ctx) from None


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
@boolean(
    "--as-kubelet",
    is_eager=True,
    help="Run as this node's kubelet: its root directory, its process settings, and its form of --version. "
    "The same as calling the program by the name kubelet.",
)
@click.option(
    "--root-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help=f"The agent's directory. Default: {DEFAULT_ROOT}, or {KUBELET_ROOT} with --as-kubelet.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file (KubeletConfiguration with a kubeletx section).",
)
@click.option(
    "--config-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Directory of *.conf files, also in subdirectories, that are read after --config, in order of name.",
)
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
@with_agent_flags
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
    """A node agent that runs several runtimes at once; each pod is bound to one of them.

    With flags and no command it is the agent:

    \b
      kubeletx --container-runtime-endpoint container:containerd:unix:///run/containerd/containerd.sock

    With a command it talks to the agent that runs on --root-dir.
    """

    ctx.obj = Invocation(
        root_dir=root_dir,
        config_file=config_file,
        config_dir=config_dir,
        flags=given(flags),
        namespace=namespace,
        as_kubelet=as_kubelet,
    )
    if ctx.invoked_subcommand is None:
        if namespace is not None:
            raise click.UsageError("--namespace is for commands, such as 'kubeletx -n NAME get pods'")
        from .run import run

        return run(ctx.obj)
    if ctx.invoked_subcommand not in ("config", "plugin", "plugins"):
        ctx.obj.refuse_agent_flags()
    return ExitCode.OK


def main() -> None:
    """Entry point of the program. If the program is called by the name kubelet, adds the flag ``--as-kubelet``."""
    is_kubelet = Path(sys.argv[0]).name == KUBELET
    cli.main(args=["--as-kubelet", *sys.argv[1:]] if is_kubelet else sys.argv[1:], prog_name="kubeletx")
