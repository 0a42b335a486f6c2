"""Man pages in roff, made from the commands: ``kubeletx(1)`` with a section for each command, and ``kubeletx-agent(8)``.

Source: man(7) and groff_man(7).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from kubeletx import __version__

from ..options.exit_codes import ExitCode

_FILES = {
    "/etc/kubeletx/config.yaml": "Settings of the agent: a KubeletConfiguration with a section kubeletx.",
    "/var/lib/kubeletx": "Root directory of the agent, with the socket kubeletx.sock of its commands.",
}
_AGENT = "agent"
_EVERYWHERE = {"--help", "--root-dir"}
"""Options that every command has."""


def man_pages(program: click.Group) -> dict[str, str]:
    """Return the text of each man page by the name of its file, such as ``kubeletx.1``.

    `program`: the group of all commands. Every command is imported.
    """
    context = click.Context(program, info_name="kubeletx", **program.context_settings)
    agent = program.get_command(context, _AGENT)
    assert agent is not None
    above = click.Context(agent, info_name=_AGENT, parent=context)
    return {
        "kubeletx.1": "\n".join(_program_page(program, context)) + "\n",
        "kubeletx-agent.8": "\n".join(_agent_page(agent, above)) + "\n",
    }


def _program_page(program: click.Group, context: click.Context) -> Iterator[str]:
    yield from _head(
        "kubeletx", 1, "runs containers, standby containers and virtual machines side by side on a node"
    )
    yield from (".B kubeletx", "[\\fB\\-\\-root\\-dir\\fR \\fIDIR\\fR] [\\fB\\-n\\fR \\fINAMESPACE\\fR]")
    yield "\\fICOMMAND\\fR [\\fIARGS\\fR]..."
    yield ".SH DESCRIPTION"
    yield _escaped("Commands talk to the agent on --root-dir. 'kubeletx agent' is that agent: see")
    yield ".BR kubeletx\\-agent (8)."
    yield ".SH COMMANDS"
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if command is not None and name != _AGENT:
            yield from _command(command, click.Context(command, info_name=name, parent=context))
    yield from _tail("kubeletx\\-agent (8)")


def _agent_page(agent: click.Command, context: click.Context) -> Iterator[str]:
    yield from _head("kubeletx-agent", 8, "the node agent of kubeletx")
    yield from (".B kubeletx", "[\\fBagent\\fR] \\fIFLAGS\\fR...", ".SH DESCRIPTION")
    yield from _paragraphs(agent.help or "")
    yield ".SH OPTIONS"
    yield from _options(agent, context)
    yield from _tail("kubeletx (1)")


def _head(name: str, section: int, purpose: str) -> Iterator[str]:
    yield f'.TH {_escaped(name.upper())} {section} "" "kubeletx {__version__}" "kubeletx"'
    yield from (".nh", ".ad l")  # flags are not hyphenated, and lines are not stretched
    yield from (".SH NAME", f"{_escaped(name)} \\- {purpose}", ".SH SYNOPSIS")


def _tail(other: str) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    yield f"{ExitCode.OK:d}: success. {ExitCode.FAILED:d}: the agent refused the request, an object was not found,"
    yield f"or no agent answered. {ExitCode.USAGE:d}: a flag, an argument or the configuration is wrong."
    yield ".SH FILES"
    for path, text in _FILES.items():
        yield from (".TP", f".I {_escaped(path)}", text)
    yield from (".SH SEE ALSO", f".BR {other}")


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_escaped(context.command_path)} {_escaped(usage)}"'
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(inner, click.Context(inner, info_name=name, parent=context))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record is not None and not _EVERYWHERE & set(option.opts):
            names, text = record
            yield from (".TP", f"\\fB{_escaped(names)}\\fR", _escaped(text))


def _paragraphs(text: str) -> Iterator[str]:
    """Convert a command's help. A block that click must not wrap keeps its lines."""
    for number, block in enumerate(inspect.cleandoc(text).split("\n\n")):
        lines = [_escaped(line) for line in block.removeprefix("\b\n").split("\n")]
        if number:
            yield ".PP"
        if block.startswith("\b"):
            yield from (".nf", *lines, ".fi")
        else:
            yield from lines


def _escaped(text: str) -> str:
    """Escape the characters that roff interprets. Source: groff_char(7)."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("\n", " ")
    return f"\\&{text}" if text.startswith((".", "'")) else text
