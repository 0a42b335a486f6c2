"""The agent's flags, made from the table of settings, and their way back into texts for `load_config`.

A flag that may be given several times is repeated; a boolean flag may stand alone or with ``=true|false``,
as Go's flags do. Flags of the kubelet that have no meaning here are refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kubeletx.agent.config_kinds import Boolean
from kubeletx.agent.config_kubelet import REFUSED_FLAGS
from kubeletx.agent.config_settings import BY_FLAG, ENDPOINT_KEYS, SETTINGS, Setting

from .group import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_WORDS: Final = dict.fromkeys(ENDPOINT_KEYS, "TYPE:NAME:URL;...")


class _BooleanText(click.Option):
    """A boolean whose text goes to `load_config` as it is."""

    stands_alone = True


def with_agent_flags(function: F) -> F:
    """Add every flag of the table to a command."""
    for setting in reversed([setting for setting in SETTINGS if setting.flag]):
        function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Callable[[F], F]:
    names = [f"--{setting.flag}", parameter(setting.flag)]
    if setting.short:
        names.insert(0, f"-{setting.short}")
    return click.option(
        *names,
        cls=_BooleanText if isinstance(setting.kind, Boolean) else click.Option,
        multiple=True,
        metavar=_WORDS.get(setting.path, setting.kind.word),
        help=setting.help,
    )


def parameter(flag: str) -> str:
    """The Python name of a flag."""
    return "flag_" + flag.replace("-", "_")


def given(values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The flags that were given, by name, with their texts in order."""
    return {flag: values[parameter(flag)] for flag in BY_FLAG if values.get(parameter(flag))}


def explain_unknown(option: str) -> str:
    """Why a flag is not accepted, and what to do."""
    name = option.lstrip("-").partition("=")[0]
    if name in REFUSED_FLAGS:
        return f"--{name} is a flag of the kubelet that kubeletx does not have: {REFUSED_FLAGS[name]}"
    known = [*BY_FLAG, "root-dir", "config", "config-dir", "namespace", "version", "help"]
    return f"unknown flag --{name}{did_you_mean(f'--{name}', [f'--{one}' for one in known])}"
