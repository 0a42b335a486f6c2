"""The agent's flags, made from the table of settings, and their way back into texts for `load_config`.

A flag that may be given several times is repeated; a boolean flag may stand alone or with ``=true|false``,
as Go's flags do. Flags of the kubelet that kubeletx does not carry out are read too, but not shown in the help:
`config_kubelet` says which of their values are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kubeletx.agent.config.kinds import Boolean, SettingKind
from kubeletx.agent.config.kubelet_options import OPTION_BY_FIELD, OPTION_BY_FLAG
from kubeletx.agent.config.settings import BY_FLAG, BY_KEY, ENDPOINT_KEYS, SETTINGS, Setting

from .group import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_WORDS: Final = dict.fromkeys(ENDPOINT_KEYS, "TYPE:NAME:URL;...")


class _BooleanText(click.Option):
    """A boolean whose text goes to `load_config` as it is."""

    stands_alone = True


def with_agent_flags(function: F) -> F:
    """Add every flag of both tables to a command."""
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
        metavar=_WORDS.get(setting.path, setting.kind.word),
        help=setting.help,
    )


def _class_of(kind: SettingKind) -> type[click.Option]:
    return _BooleanText if isinstance(kind, Boolean) else click.Option


def parameter(flag: str) -> str:
    """The Python name of a flag."""
    return "flag_" + flag.replace("-", "_")


def given(values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The flags that were given, by name, with their texts in order."""
    flags = (*BY_FLAG, *OPTION_BY_FLAG)
    return {flag: values[parameter(flag)] for flag in flags if values.get(parameter(flag))}


def explain_unknown(option: str) -> str:
    """Message for an unknown flag, with what to do."""
    name = option.lstrip("-").partition("=")[0]
    field = _FIELDS.get(name.replace("-", ""))
    if field is not None:
        return f"--{name} is no flag; set {field} in the --config file, as for a kubelet"
    known = [*BY_FLAG, "root-dir", "config", "config-dir", "namespace", "version", "help"]
    return f"unknown flag --{name}{did_you_mean(f'--{name}', [f'--{one}' for one in known])}"


_FIELDS: Final = {field.lower(): field for field in (*BY_KEY, *OPTION_BY_FIELD) if "." not in field}
"""Fields of KubeletConfiguration by their names in small letters, for flags that kubelets never had."""
