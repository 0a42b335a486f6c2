"""Makes the agent's flags from the table of settings, and returns their values as texts for `load_config`.

A flag for a list or map may be repeated. A boolean flag may have no value, or ``=true`` or ``=false``, as Go's flags.
Flags of the kubelet that have no effect in kubeletx are parsed too, but not shown in the help;
`kubeletx.agent.config.kubelet_options` says which of their values are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kubeletx.agent.config.kinds import Boolean, SettingKind
from kubeletx.agent.config.kubelet_options import OPTION_BY_FIELD, OPTION_BY_FLAG
from kubeletx.agent.config.tree import BY_FLAG, BY_KEY, SETTINGS, Setting

from ..output.words import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


class _BooleanText(click.Option):
    """Option for a boolean setting. Its value stays a text, such as ``true``, which `load_config` parses."""

    stands_alone = True


def with_agent_flags(function: F) -> F:
    """Decorator that adds every flag of the agent to a command, and hidden flags of the kubelet without effect."""
    for flag, option in OPTION_BY_FLAG.items():
        function = click.option(
            f"--{flag}", parameter(flag), cls=_class_of(option.kind), multiple=True, hidden=True
        )(function)
    for setting in reversed([setting for setting in SETTINGS if setting.flag]):
        function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Callable[[F], F]:
    names = [f"--{setting.flag}", parameter(setting.flag)]
    if setting.short:
        names.insert(0, f"-{setting.short}")
    return click.option(
        *names,
        cls=_class_of(setting.kind),
        multiple=True,
        metavar="TYPE:NAME:URL;..." if setting.single else setting.kind.word,
        help=setting.help,
    )


def _class_of(kind: SettingKind) -> type[click.Option]:
    return _BooleanText if isinstance(kind, Boolean) else click.Option


def parameter(flag: str) -> str:
    """Return the name of the command's Python parameter for a flag, such as ``flag_node_ip`` for ``node-ip``."""
    return "flag_" + flag.replace("-", "_")


def given(values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the texts of all occurrences of each flag that was given, by the flag's name without dashes.

    `values`: the command's parameters, by name (see `parameter`).
    """
    flags = (*BY_FLAG, *OPTION_BY_FLAG)
    return {flag: values[parameter(flag)] for flag in flags if values.get(parameter(flag))}


def explain_unknown(option: str) -> str:
    """Return the error message for an unknown flag.

    The message names the field of the configuration file to set instead, or else a similar flag.
    """
    name = option.lstrip("-").partition("=")[0]
    field = _FIELDS.get(name.replace("-", ""))
    if field is not None:
        return f"--{name} is not a flag; set {field} in the --config file, as for a kubelet"
    known = [*BY_FLAG, "root-dir", "config", "config-dir", "namespace", "version", "help"]
    return f"unknown flag --{name}{did_you_mean(f'--{name}', [f'--{flag}' for flag in known])}"


_FIELDS: Final = {field.lower(): field for field in (*BY_KEY, *OPTION_BY_FIELD) if "." not in field}
"""Spelling of each KubeletConfiguration field by its lower-case name, to explain flags that kubelets never had."""
