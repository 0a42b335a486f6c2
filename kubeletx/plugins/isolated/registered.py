"""Converts what a plugin registered to plain values in the child, and to the agent's tables of registrations there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from kubeletx.api import Unavailable
from kubeletx.runtimes.endpoints.kinds import RuntimeKind
from kubeletx.runtimes.isolation.wire import name_of
from kubeletx.runtimes.plugins.elsewhere import FactoryElsewhere
from kubeletx.runtimes.plugins.failures import shortened
from kubeletx.runtimes.plugins.process_state import restored_process

from ..candidates import FAILED, Candidate, LoadedPlugin
from ..loading import load_candidate
from ..registrations import Hook, Registration
from .control import ReportedItem, ReportedPlugin

_RUNTIME: Final = "runtime"
_KIND_FIELDS: Final = ("name", "workload_types", "schemes", "default_claim", "parameters")
_FIELDS: Final = ("name", "period_seconds", "fails_open", "only_configured", "title", "sources")
_SECTION: Final = cast("type[Any]", dict[str, Any])
"""Settings in the agent: the section of the configuration. The child decodes it with the plugin's class."""


def registered(candidate: Candidate) -> ReportedPlugin:
    """Return what the plugin registered as plain values."""
    kinds = [_plain(_RUNTIME, kind, _KIND_FIELDS) for kind in candidate.kinds]
    others = [
        _plain(registration.hook.value, registration, _FIELDS) for registration in candidate.registrations
    ]
    return ReportedPlugin(
        state=candidate.about.state,
        reason=shortened(candidate.about.reason),
        traceback=candidate.about.traceback,
        is_known=candidate.is_known,
        items=(*kinds, *others),
    )


def candidate_of(plugin: LoadedPlugin, reported: ReportedPlugin) -> Candidate:
    """Return the plugin with what it registered in a child process. Its factories import it there, see `FactoryElsewhere`."""
    about = msgspec.structs.replace(
        plugin, state=reported.state, reason=reported.reason, traceback=reported.traceback
    )

    def common(item: ReportedItem, fields: tuple[str, ...]) -> dict[str, Any]:
        module = plugin.source.partition(":")[0].strip()
        return {
            **{name: getattr(item, name) for name in fields},
            "factory": FactoryElsewhere(module, item.factory, item.settings, _importing(plugin, item)),
            "settings": _SECTION if item.has_settings else None,
            "plugin": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
        }

    return Candidate(
        about=about,
        kinds=tuple(
            RuntimeKind(**common(kind, _KIND_FIELDS)) for kind in reported.items if kind.hook == _RUNTIME
        ),
        registrations=tuple(
            Registration(
                hook=Hook(reported_item.hook), source=plugin.source, **common(reported_item, _FIELDS)
            )
            for reported_item in reported.items
            if reported_item.hook != _RUNTIME
        ),
        is_known=reported.is_known,
    )


def _plain(hook: str, item: RuntimeKind | Registration, fields: tuple[str, ...]) -> ReportedItem:
    return ReportedItem(
        hook=hook,
        factory=_name_or_empty(item.factory),
        settings=_name_or_empty(item.settings) if item.settings is not None else "",
        has_settings=item.settings is not None,
        **{name: getattr(item, name) for name in fields},
    )


def _name_or_empty(thing: object) -> str:
    try:
        return name_of(thing)
    except LookupError:
        return ""


def _importing(plugin: LoadedPlugin, item: ReportedItem) -> Callable[..., Any]:
    """Return the function that makes `item` in this process, for ``isolation=none``."""

    def make(*args: Any) -> Any:
        with restored_process(plugin.identity):
            candidate = load_candidate(plugin)
        if candidate.about.state == FAILED:
            raise Unavailable(candidate.about.reason)
        registered: list[RuntimeKind | Registration] = [
            *(candidate.kinds if item.hook == _RUNTIME else ()),
            *(
                registration
                for registration in candidate.registrations
                if registration.hook.value == item.hook
            ),
        ]
        own = next((registration for registration in registered if registration.name == item.name), None)
        if own is None:
            raise Unavailable(
                f"{plugin.identity} registers no {item.hook} {item.name!r} any more; restart the agent"
            )
        *first, section, host = args
        settings = None if own.settings is None else msgspec.convert(section or {}, own.settings)
        return cast("Callable[..., Any]", own.factory)(*first, settings, host)

    return make
