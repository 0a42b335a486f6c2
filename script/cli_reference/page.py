"""Makes the reference of the command line from the commands: exit codes, flags, fields of the configuration file."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kubeletx.agent.config.kinds_kubelet import KubeletOption
from kubeletx.agent.config.kubelet_legacy import LEGACY_OPTIONS
from kubeletx.agent.config.kubelet_options import KUBELET_OPTIONS
from kubeletx.agent.config.tree import SETTINGS, Setting
from kubeletx.cli.commands import COMMANDS
from kubeletx.cli.main import cli
from kubeletx.cli.options.exit_codes import ExitCode

_INTRO = """\
# Command line

Made by `python -m script.cli_reference FILE`; do not edit.

`kubeletx FLAGS` runs the agent. `kubeletx [--root-dir DIR] COMMAND` sends a command to the agent with this root
directory, over its socket `DIR/kubeletx.sock`. `kubeletx` alone prints help.
The storage agent has a program of its own, `kubeletx-flexvolume`: docs/storage.md.
"""

_EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "the agent refused the request, an object was not found, or no agent answered",
    ExitCode.USAGE: "a flag, an argument, a manifest or the configuration is wrong",
    ExitCode.STALLED: "a plugin blocked the agent for too long; the next start runs it in a process of its own",
    ExitCode.UNCLEAN: "the agent did not end by itself within `kubeletx.stopTimeout` after SIGTERM",
    ExitCode.INTERRUPTED: "Ctrl-C",
}


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([*_pages()]).rstrip() + "\n"


def _pages() -> Iterator[str]:
    yield _INTRO
    yield from _codes()
    yield from _agent()
    yield from _others()
    yield "## Commands\n"
    context = click.Context(cli, info_name="kubeletx", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is not None:
            yield from _command(command, click.Context(command, info_name=name, parent=context))


def _codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |\n|---|---|"
    for code, meaning in _EXIT_CODES.items():
        yield f"| {int(code)} | {meaning} |"
    yield "\n`exec` and `attach` return the exit code of the command in the container.\n"


def _agent() -> Iterator[str]:
    yield "## Flags of the agent, and fields of its configuration file\n"
    yield (
        "Precedence, lowest first: defaults, `--config` file, `*.conf` files of `--config-dir` in order of name, flags.\n"
        "Fields without `kubeletx.` are those of KubeletConfiguration, with the same meaning. A flag that takes a list or\n"
        "a map may be repeated.\n"
    )
    yield "| flag | field | default | meaning |\n|---|---|---|---|"
    for param in cli.params:
        if isinstance(param, click.Option) and not (param.name or "").startswith("flag_"):
            yield f"| `{param.opts[0]}` | | | {param.help} |"
    for setting in SETTINGS:
        yield f"| {_flag(setting)} | `{setting.key}` | {_default(setting)} | {setting.help} |"
    yield ""


def _flag(setting: Setting) -> str:
    return f"`--{setting.flag}`" if setting.flag else ""


def _default(setting: Setting) -> str:
    if setting.single:
        return ""
    shown = setting.kind.show(setting.default)
    if isinstance(shown, dict):
        shown = ", ".join(f"{key}: {value}" for key, value in shown.items())
    if isinstance(shown, list):
        shown = ", ".join(shown)
    if isinstance(shown, bool):
        shown = str(shown).lower()
    return f"`{shown}`" if shown not in ("", None) else ""


def _others() -> Iterator[str]:
    yield "### Kubelet settings that are not supported\n"
    yield (
        "The table above and this one contain every flag and every field of kubelet v1.36. A flag and its field are\n"
        "treated alike. Empty values and the values in the third column need no support and are accepted without a\n"
        "warning. Any other value is either accepted with a warning at start that names the consequence, or refused.\n"
    )
    yield "| flag | field | accepted without a warning | any other value |\n|---|---|---|---|"
    for option in KUBELET_OPTIONS:
        yield f"| {_code(option.flag, '--')} | {_code(option.field)} | {_silent(option)} | {_treatment(option)} |"
    yield "\n### Flags of older kubelets\n"
    yield (
        "Kubelet v1.36 no longer has these flags. They are treated in the same way: a command line of kubelet v1.15 or\n"
        "later starts the agent, or is refused with the reason.\n"
    )
    yield "| flag | accepted without a warning | any other value |\n|---|---|---|"
    for option in LEGACY_OPTIONS:
        yield f"| {_code(option.flag, '--')} | {_silent(option)} | {_treatment(option)} |"
    yield ""


def _code(name: str, dashes: str = "") -> str:
    return f"`{dashes}{name}`" if name else ""


def _silent(option: KubeletOption) -> str:
    return ", ".join(
        f"`{str(value).lower() if isinstance(value, bool) else _joined(value)}`" for value in option.silent
    )


def _joined(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def _treatment(option: KubeletOption) -> str:
    if option.silent == (True, False):
        return f"also accepted: {option.words}"
    if option.accepted:
        values = ", ".join(f"`{value}`" for value in option.accepted)
        return f"{values}: warning: {option.words}. Others: **refused**: {option.fix}"
    return f"{'**refused**' if option.refused else 'warning'}: {option.words}"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    path = context.command_path
    yield f"### {path}\n"
    yield f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    if command.help:
        yield _paragraphs(command.help) + "\n"
    options = [
        param
        for param in command.get_params(context)
        if isinstance(param, click.Option) and param.name != "help"
    ]
    if options:
        yield "| flag | meaning |\n|---|---|"
        for option in options:
            names, text = option.get_help_record(context) or ("", "")
            yield (
                f"| `{names}` | {text} |".replace("|json", "\\|json")
                .replace("|yaml", "\\|yaml")
                .replace("|name", "\\|name")
            )
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(inner, click.Context(inner, info_name=name, parent=context))


def _paragraphs(text: str) -> str:
    """Convert a command's help text to Markdown. A block that click must not wrap becomes a code block."""
    parts = []
    for block in text.strip().split("\n\n"):
        is_code = block.startswith("\b")
        lines = [line.strip() for line in block.removeprefix("\b\n").split("\n")]
        parts.append("\n".join(["```", *lines, "```"] if is_code else lines))
    return "\n\n".join(parts)
