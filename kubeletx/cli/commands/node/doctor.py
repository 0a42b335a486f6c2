"""``kubeletx doctor``: shows on one screen whether this node is well, and what to do."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeletx.api.errors import KubeletxError

from ...connection.client import AgentClient
from ...options.common import output_option, seconds_of
from ...options.exit_codes import ExitCode
from ...options.go_flags import command
from ...options.settings import Invocation
from ...output.printers import print_object

if TYPE_CHECKING:
    from ...setup.doctor import Diagnosis, DoctorNode

_SETTINGS = Path("/etc/kubeletx/config.yaml")
_INDENT = 24
_ANSWER_SECONDS = 5.0
_MOST_COLUMNS = 120


@command(short_help="Show whether this node is well, and what to do.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    default=_SETTINGS,
    show_default=True,
    metavar="FILE",
    help="Settings of the agent.",
)
@click.option(
    "--timeout", default="20s", show_default=True, metavar="DURATION", help="How long the checks may take."
)
@output_option("json", "yaml")
@click.pass_obj
def doctor(invocation: Invocation, config_file: Path, timeout: str, output: str | None) -> int:
    """Show whether this node is well, and what to do: kernel, cgroups, settings, plugins, runtimes, network, DNS, time,
    disk, ports, certificates, agent.

    Run it as root. The exit code is 1 if there is a problem, and 0 with warnings alone.
    """
    from ...setup.checks import CHECKS
    from ...setup.doctor import PROBLEM, examine

    diagnosis = examine(CHECKS, _node(invocation, config_file), seconds=seconds_of("--timeout", timeout))
    if output:
        print_object(diagnosis, output)
    else:
        _show(diagnosis)
    return ExitCode.FAILED if diagnosis.state == PROBLEM else ExitCode.OK


def _node(invocation: Invocation, config_file: Path) -> DoctorNode:
    from kubeletx.agent.config.tree import AgentConfig

    from ...setup.doctor import DoctorNode

    agent, error = AgentClient(invocation.socket_path, longest_seconds=_ANSWER_SECONDS), ""
    config = AgentConfig(root_dir=agent.socket_path.parent)
    if config_file != _SETTINGS or config_file.exists():
        try:
            config = invocation._replace(config_file=config_file).load()
        except KubeletxError as problem:
            error = problem.message
    return DoctorNode(config=config, agent=agent, config_error=error)


def _show(diagnosis: Diagnosis) -> None:
    from ...setup.doctor import OK, PROBLEM, WARNING

    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    for finding in diagnosis.findings:
        wrap = textwrap.TextWrapper(width, subsequent_indent=" " * _INDENT, break_on_hyphens=False)
        wrap.initial_indent = f"{finding.state:<9}{finding.check:<15}"
        click.echo(wrap.fill(finding.text))
        if finding.fix:
            wrap.initial_indent = f"{wrap.subsequent_indent}-> "
            click.echo(wrap.fill(finding.fix))
    count = {
        state: sum(finding.state == state for finding in diagnosis.findings) for state in (PROBLEM, WARNING)
    }
    words = [f"{number} {state}{'s' if number > 1 else ''}" for state, number in count.items() if number]
    click.echo("This node is well." if diagnosis.state == OK else f"{' and '.join(words)}.")
