"""Man pages in roff, made from the help of the commands: ``kubeletx(1)`` and ``kubeletx-agent(8)``.

Source: man(7) and groff_char(7).
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from kubeletx import __version__

from ..options.exit_codes import ExitCode

_AGENT = "agent"
_COLUMNS = 72
"""Width of the help text; man adds margins up to 80."""
_END = f"""\
.SH EXIT STATUS
{ExitCode.OK:d}: success. {ExitCode.FAILED:d}: the agent refused the request, an object was not found,
or no agent answered. {ExitCode.USAGE:d}: a flag, an argument or the configuration is wrong.
.SH FILES
.TP
.I /etc/kubeletx/config.yaml
Settings of the agent: a KubeletConfiguration with a section kubeletx.
.TP
.I /var/lib/kubeletx
Root directory of the agent, with the socket kubeletx.sock of its commands.
.SH SEE ALSO
.BR kubeletx (1),
.BR kubeletx\\-agent (8)"""


def man_pages(program: click.Group) -> dict[str, str]:
    """Return the text of each man page by the name of its file, such as ``kubeletx.1``.

    `program`: the group of all commands. Every command is imported.
    """
    context = _context(program, "kubeletx")
    agent = program.get_command(context, _AGENT)
    assert agent is not None
    commands = [*_head("kubeletx", 1, "commands of a node agent for containers and virtual machines")]
    commands += [".SH COMMANDS", *_commands(program, context)]
    flags = [*_head("kubeletx-agent", 8, "the node agent of kubeletx")]
    flags += [".SH OPTIONS", *_help(agent, _context(agent, _AGENT, context))]
    return {
        "kubeletx.1": "\n".join([*commands, _END, ""]),
        "kubeletx-agent.8": "\n".join([*flags, _END, ""]),
    }


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _head(name: str, section: int, purpose: str) -> Iterator[str]:
    yield f'.TH {_escaped(name.upper())} {section} "" "kubeletx {__version__}" "kubeletx"'
    yield from (".SH NAME", f"{_escaped(name)} \\- {purpose}")


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and name != _AGENT:
            inner = _context(command, name, context)
            yield f'.SS "{_escaped(inner.command_path)}"'
            yield from _help(command, inner)
            if isinstance(command, click.Group):
                yield from _commands(command, inner)


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from (".nf", *map(_escaped, command.get_help(context).split("\n")), ".fi")


def _escaped(text: str) -> str:
    """Escape the characters that roff interprets."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text
