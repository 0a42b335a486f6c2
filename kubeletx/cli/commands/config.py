"""``kubeletx config view``: shows the effective settings, and whether a flag, a file or the default set each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from kubeletx.server.views import ConfigValue

from ..connection.client import AgentClient
from ..options.common import output_option
from ..options.go_flags import Group, boolean
from ..options.settings import Invocation
from ..output.printers import Column, print_object, print_table


@click.group(cls=Group, short_help="Show the effective configuration.")
def config() -> None:
    """Show the effective configuration."""


@config.command()
@boolean("--changed", help="Leave out what has its default.")
@output_option("json", "yaml")
@click.pass_obj
def view(invocation: Invocation, changed: bool, output: str | None) -> None:
    """Show the settings of the running agent and where each came from.

    With agent flags before 'config', no agent is asked: the settings of an agent started with these flags
    are shown, which also checks endpoints and a configuration file.
    """
    values = _of_flags(invocation) if invocation.has_agent_flags else _of_agent(invocation)
    shown = [value for value in values if not changed or value.origin != "default"]
    if output:
        print_object(as_document(shown), output)
    else:
        print_table(_COLUMNS, shown)


def _of_agent(invocation: Invocation) -> Sequence[ConfigValue]:
    return AgentClient(invocation.socket_path).items("/v1/config", ConfigValue)


def _of_flags(invocation: Invocation) -> Sequence[ConfigValue]:
    from kubeletx.agent.config.endpoints import check_plugins_part
    from kubeletx.agent.config.view import effective_values
    from kubeletx.agent.parts.settings import provider_plan
    from kubeletx.plugins.foreign import load_agent_plugins
    from kubeletx.runtimes.plugins.call_markers import CallMarkers

    config = invocation.load()
    markers = CallMarkers(config.root_dir, writes=False)
    plugins = asyncio.run(load_agent_plugins(config.plugins, markers=markers))
    check_plugins_part(config, plugins.kinds, plugins.registrations.settings())
    provider_plan(config)
    return effective_values(config)


def as_document(values: Sequence[ConfigValue]) -> dict[str, Any]:
    """Return a configuration file with the same effect, as plain values. Settings without effect are left out."""
    document: dict[str, Any] = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    for value in values:
        if not value.key or value.value is None or value.unused:
            continue
        *parents, last = value.key.split(".")
        table = document
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value.value
    return document


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


_COLUMNS = (
    Column("SETTING", lambda setting, _: setting.key or f"--{setting.flag}"),
    Column("VALUE", lambda setting, _: _text(setting.value)),
    Column("FROM", lambda setting, _: setting.origin),
)
