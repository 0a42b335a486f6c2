"""`registered_by`: imports plugins of other projects in a child process, and returns what they registered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeletx.api import KubeletxError, TimedOut, Unavailable
from kubeletx.runtimes.isolation.control import CONTROL
from kubeletx.runtimes.isolation.notes import agent_objects
from kubeletx.runtimes.isolation.process import ChildProcess, import_path
from kubeletx.runtimes.plugins.identity import normal_name

from ..candidates import FAILED, Candidate, InstalledPlugin, LoadedPlugin
from ..loading import LOAD_SECONDS
from ..settings import PluginLimits
from .control import CONTROL_CLASS, MOST_DEADLINES, Imports, ReportedPlugin
from .registered import candidate_of

_AT_ONCE: Final = 2
"""Number of distributions that are imported at the same time; each needs a CPU."""
_MARGIN_SECONDS: Final = 10.0
"""Time beyond the deadlines of an import after which the child itself hangs."""


async def registered_by(
    plugins: Iterable[LoadedPlugin],
    settings: PluginLimits,
    sections: Mapping[str, Any] | None = None,
    origin: str = "",
) -> list[Candidate]:
    """Return the plugins with what they registered; a failed plugin has the reason.

    `settings`, `sections`, `origin`: as for `load_agent_plugins`.
    """
    seconds = min(LOAD_SECONDS, settings.stall_seconds or LOAD_SECONDS)
    by_distribution: dict[str, list[LoadedPlugin]] = {}
    for plugin in plugins:
        by_distribution.setdefault(normal_name(plugin.distribution), []).append(plugin)
    groups = list(by_distribution.values())

    def request_of(items: Sequence[LoadedPlugin]) -> Imports:
        return Imports(
            plugins=msgspec.convert(items, tuple[InstalledPlugin, ...], from_attributes=True),
            seconds=seconds,
            memory_bytes=settings.memory_limit_bytes,
            sections=None if sections is None else dict(sections),
            origin=origin,
            sys_path=import_path(),
        )

    answers = await _imported(groups, request_of, settings.variables)
    for number, items in enumerate(groups):
        if isinstance(answers[number], Unavailable) and len(groups) > 1:
            # The import of another distribution may have ended the child, such as by a signal to its parent process.
            (answers[number],) = await _imported([items], request_of, settings.variables)
    return [
        item
        for items, result in zip(groups, answers, strict=True)
        for item in (
            [_failed(item, result) for item in items] if isinstance(result, KubeletxError) else result
        )
    ]


async def _imported(
    groups: Sequence[Sequence[LoadedPlugin]],
    request_of: Callable[[Sequence[LoadedPlugin]], Imports],
    variables: Collection[str],
) -> list[list[Candidate] | KubeletxError]:
    """Import the plugins of some distributions in one child process. Returns Unavailable for each if the child has ended."""
    try:
        child = await ChildProcess.start(
            "imports of plugins",
            agent_objects(process="imports of plugins"),
            control=CONTROL_CLASS,
            variables=variables,
            ends_group=True,
        )
    except KubeletxError as error:
        return [error for _ in groups]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def imported(items: Sequence[LoadedPlugin]) -> list[Candidate] | KubeletxError:
        request = request_of(items)
        seconds = (request.seconds * MOST_DEADLINES + _MARGIN_SECONDS) * len(items)
        try:
            async with turns, asyncio.timeout(seconds):
                reported = await child.peer.call(CONTROL, "register", (request,), tuple[ReportedPlugin, ...])
            return [candidate_of(item, what) for item, what in zip(items, reported, strict=True)]
        except TimeoutError:
            return TimedOut(
                f"the process that imports the plugin has not answered within {seconds:g} s; repair the plugin, or leave "
                f"it out with --disable-plugin={items[0].name}"
            )
        except Unavailable:
            return Unavailable(
                "the import of the plugin ended its parent process; repair or uninstall the plugin, or leave it out with "
                f"--disable-plugin={items[0].name}"
            )
        except KubeletxError as error:
            return error

    try:
        return list(await asyncio.gather(*(imported(items) for items in groups)))
    finally:
        await child.stop(0)


def _failed(plugin: LoadedPlugin, error: KubeletxError) -> Candidate:
    return Candidate(about=msgspec.structs.replace(plugin, state=FAILED, reason=str(error)))
