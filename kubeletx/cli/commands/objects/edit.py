"""``kubeletx edit``: changes an applied pod in an editor."""

from __future__ import annotations

import os
import tempfile
from typing import Final

import click

from kubeletx.api import KubeletxError

from ...connection.client import AgentClient
from ...options.common import in_namespace
from ...options.completing import complete_kinds
from ...options.exit_codes import ExitCode
from ...options.go_flags import command
from ...output.kinds import kinds_and_names
from ...output.printers import to_yaml
from .written import applied_pod, send_changed

_HEAD: Final = """\
# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
"""


@command(short_help="Change an applied pod in an editor.")
@click.argument("words", nargs=-1, required=True, metavar="pod NAME", shell_complete=complete_kinds("pods"))
@in_namespace
def edit(agent: AgentClient, words: tuple[str, ...], namespace: str) -> int:
    """Change a pod of 'kubeletx apply' in the editor of KUBE_EDITOR, VISUAL or EDITOR.

    A change that the agent refuses is opened again, with the reason.
    """
    named = [(kind.singular, name) for kind, names in kinds_and_names(words) for name in names]
    if len(named) != 1 or named[0][0] != "pod":
        raise click.UsageError("name one pod, such as 'kubeletx edit pod web'")
    name = named[0][1]
    before = to_yaml(applied_pod(agent, "edit", namespace, name)) + "\n"
    text, problem = before, ""
    while True:
        edited = _edit(text, problem)
        if not edited.strip():
            click.echo("Edit cancelled, saved file was empty.", err=True)
            return ExitCode.FAILED
        if edited == before or (edited == text and not problem):
            click.echo("Edit cancelled, no changes made.")
            return ExitCode.OK
        if edited == text:
            with tempfile.NamedTemporaryFile(
                "w", prefix="kubeletx-edit-", suffix=".yaml", delete=False
            ) as copy:
                copy.write(text)
            click.echo(f"Error: {problem}", err=True)
            click.echo(
                f"Edit cancelled, no valid changes were saved; a copy of them is in {copy.name}", err=True
            )
            return ExitCode.FAILED
        text = edited
        try:
            send_changed(agent, text.encode())
        except KubeletxError as error:
            problem = error.message
        else:
            click.echo(f"pod/{name} edited")
            return ExitCode.OK


def _edit(text: str, problem: str) -> str:
    """Return the text as the user saved it, without comments. `problem`: of the earlier try, shown as a comment."""
    comment = "".join(f"# * {line}\n" for line in problem.split("\n"))
    head = _HEAD + (f"# The pod was not valid:\n{comment}#\n" if problem else "")
    edited = click.edit(head + text, editor=os.environ.get("KUBE_EDITOR") or None, extension=".yaml")
    if edited is None:  # not saved
        return text
    return "\n".join(line for line in edited.split("\n") if not line.startswith("#"))
