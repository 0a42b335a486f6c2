"""`registered_by`: imports plugins of other projects in a child process, and returns what they registered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from kubeletx.api import KubeletxError, TimedOut
from kubeletx.runtimes.isolation.control import CONTROL
from kubeletx.runtimes.isolation.process import ChildProcess
from kubeletx.runtimes.isolation.remote import remote_class
from kubeletx.runtimes.plugins.identity import normal_name

from ...config.tree import PluginSettings
from ..candidates import FAILED, Candidate, LoadedPlugin
from ..loading import LOAD_SECONDS
from .control import Imports, PluginEntry, ServicesControl
from .process import MODULE, Notes
from .registered import candidate_of

_AT_ONCE: Final = 2
"""Number of distributions that are imported at the same time; each needs a CPU."""
_MARGIN_SECONDS: Final = 10.0
"""Time beyond the deadline of an import after which the child itself hangs."""


async def registered_by(
    plugins: Iterable[LoadedPlugin],
    settings: PluginSettings,
    sections: Mapping[str, Any] | None = None,
    origin: str = "",
) -> list[Candidate]:
    """Return the plugins with what they registered; a failed plugin has the reason.

    `settings`, `sections`, `origin`: as for `load_agent_plugins`.
    """
    seconds = min(LOAD_SECONDS, settings.stall_seconds or LOAD_SECONDS)
    groups: dict[str, list[LoadedPlugin]] = {}
    for one in plugins:
        groups.setdefault(normal_name(one.distribution), []).append(one)
    try:
        child = await ChildProcess.start(
            "imports of plugins", Notes(), module=MODULE, variables=settings.variables, ends_group=True
        )
    except KubeletxError as error:
        return [_failed(one, str(error)) for items in groups.values() for one in items]
    control = cast("ServicesControl", remote_class(ServicesControl)(lambda: child.peer, CONTROL))
    turns = asyncio.Semaphore(_AT_ONCE)

    async def imported(items: Sequence[LoadedPlugin]) -> list[Candidate]:
        request = Imports(
            plugins=tuple(_entry(one) for one in items),
            seconds=seconds,
            memory_bytes=settings.memory_limit_bytes,
            sections=None if sections is None else dict(sections),
            origin=origin,
            sys_path=[path for path in sys.path if path],
        )
        try:
            async with turns, asyncio.timeout((seconds + _MARGIN_SECONDS) * len(items)):
                found = await control.register(request)
            return [candidate_of(one, what) for one, what in zip(items, found, strict=True)]
        except TimeoutError:
            error: KubeletxError = TimedOut("the process that imports plugins does not answer")
        except KubeletxError as raised:
            error = raised
        return [_failed(one, str(error)) for one in items]

    try:
        results = await asyncio.gather(*(imported(items) for items in groups.values()))
    finally:
        await child.stop(0)
    return [one for found in results for one in found]


def _entry(plugin: LoadedPlugin) -> PluginEntry:
    return PluginEntry(
        name=plugin.name,
        value=plugin.source,
        distribution=plugin.distribution,
        version=plugin.version,
        made_for=plugin.made_for,
    )


def _failed(plugin: LoadedPlugin, reason: str) -> Candidate:
    return Candidate(about=msgspec.structs.replace(plugin, state=FAILED, reason=reason))
