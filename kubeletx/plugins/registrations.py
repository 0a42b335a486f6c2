"""Table of what plugins register other than runtime kinds: one `Registration` for each name.

A name is unique among all registrations and runtime kinds, since it also names a section of the configuration and the
state directory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubeletx.api import (
    AdmissionCheck,
    AlreadyExists,
    HealthCheck,
    Panel,
    PodSource,
    Remedy,
    VolumeDriver,
)
from kubeletx.pods.model.sources import BUILT_IN
from kubeletx.runtimes.endpoints.isolation_rule import default_isolation
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.plugins.identity import PluginIdentity
from kubeletx.runtimes.plugins.register_arguments import RegisterArguments
from kubeletx.runtimes.plugins.required_methods import check_methods
from kubeletx.volumes.drivers.table import DRIVER_SOURCES, NAMED_DRIVERS


class Hook(enum.Enum):
    """Kind of a registration; the value is shown to users."""

    HEALTH_CHECK = "health-check"
    POD_SOURCE = "pod-source"
    ADMISSION_CHECK = "admission-check"
    PANEL = "panel"
    VOLUME_DRIVER = "volume-driver"
    REMEDY = "remedy"
    """Used by ``kubeletx remedy`` only; the agent lists it."""


class HookKind(msgspec.Struct, frozen=True):
    """Properties that all registrations of one hook share.

    `function`: name of the hook. `protocol`: methods of what is registered. `options`: keyword arguments of `register`,
    each of which is a field of `Registration`.
    """

    function: str
    protocol: type
    options: tuple[str, ...]


KINDS: Final[Mapping[Hook, HookKind]] = {
    Hook.HEALTH_CHECK: HookKind(
        "kubeletx_register_health_checks", HealthCheck, ("period_seconds", "settings", "only_configured")
    ),
    Hook.POD_SOURCE: HookKind("kubeletx_register_pod_sources", PodSource, ("settings", "only_configured")),
    Hook.ADMISSION_CHECK: HookKind(
        "kubeletx_register_admission_checks", AdmissionCheck, ("fails_open", "settings", "only_configured")
    ),
    Hook.PANEL: HookKind("kubeletx_register_panels", Panel, ("title", "settings")),
    Hook.VOLUME_DRIVER: HookKind("kubeletx_register_volume_drivers", VolumeDriver, ("sources", "settings")),
    Hook.REMEDY: HookKind("kubeletx_register_remedies", Remedy, ()),
}


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a plugin registered, such as a health check; runtime kinds are not registrations.

    `factory`: called with the decoded settings and a `PluginHost`; returns the object that does the work. `settings`:
    type of the settings in the configuration; None: there are none. `plugin`: name of the plugin's entry point.
    `distribution`, `version`: of the plugin. `source`: its entry point, as ``module:object``, from which a child process
    can load it; empty if there is none.
    """

    hook: Hook
    name: str
    factory: Callable[[Any, Any], Any]
    settings: type[Any] | None = None
    plugin: str = ""
    distribution: str = ""
    version: str = ""
    source: str = ""
    period_seconds: float = 0.0
    """Period of a health check; 0 for other registrations."""
    fails_open: bool = False
    """True: a failure of this admission check admits the pod; False: the pod waits."""
    only_configured: bool = False
    """True: it is used only if the configuration has a section of its name."""
    title: str = ""
    """Title of a panel; empty for other registrations."""
    sources: tuple[str, ...] = ()
    """Sources of volumes that a volume driver serves, such as ``flexVolume``; empty for other registrations."""

    @property
    def label(self) -> str:
        """Kind and name, such as ``health-check/disk-space``."""
        return f"{self.hook.value}/{self.name}"

    @property
    def origin(self) -> PluginIdentity:
        return PluginIdentity(self.plugin, self.distribution, self.version)


class Registrations:
    """Table of all registrations by name, in the order in which they were added."""

    def __init__(self, items: Iterable[Registration] = ()) -> None:
        self._items: dict[str, Registration] = {}
        for item in items:
            self.add(item)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def of(self, hook: Hook) -> tuple[Registration, ...]:
        return tuple(item for item in self if item.hook is hook)

    def settings(self) -> Mapping[str, type[Any] | None]:
        """Return the settings type of each registration, by name; None if it has no settings."""
        return {item.name: item.settings for item in self}

    def add(self, item: Registration) -> None:
        """Add one registration. Raises AlreadyExists if another has the name, or serves one of its volume sources."""
        if (other := self._items.get(item.name)) is not None:
            raise AlreadyExists(
                f"{item.label} of {item.origin}: the name is taken by {other.label} of {other.origin}; "
                "uninstall one of them"
            )
        for source in item.sources:
            if (other := self._serving(source)) is not None:
                raise AlreadyExists(
                    f"{item.label} of {item.origin}: volume source {source!r} is served by {other.label} of "
                    f"{other.origin}; uninstall one of them"
                )
        self._items[item.name] = item

    def _serving(self, source: str) -> Registration | None:
        return next((item for item in self if source in item.sources), None)


def isolation_of_registration(item: Registration, configured: Mapping[str, str]) -> str:
    """Return process or none: whether the registration runs in a process of its own.

    `configured`: ``kubeletx.pluginIsolation``. Code that has no entry point runs in the agent's process.
    """
    if not item.source:
        return "none"
    return configured.get(item.name) or default_isolation(item.distribution)


def check_kind_names(registrations: Registrations, kinds: KindTable) -> None:
    """Raise AlreadyExists if a runtime kind and a registration have the same name."""
    for item in registrations:
        if item.name in kinds:
            raise AlreadyExists(
                f"{item.label} of {item.origin}: the name is taken by a runtime kind of {kinds.get(item.name).origin}; "
                "uninstall one of them"
            )


def registrars(into: Registrations, plugin: PluginIdentity) -> Mapping[str, Callable[..., None]]:
    """Return the `register` function that each hook of the plugin gets, by name of the hook.

    A call of the function adds a registration to `into`. It raises InvalidConfig, which names the argument, for a wrong
    argument, and AlreadyExists for a name that is taken.
    """
    return {kind.function: _registrar(into, plugin, hook) for hook, kind in KINDS.items()}


def _registrar(into: Registrations, plugin: PluginIdentity, hook: Hook) -> Callable[..., None]:
    kind = KINDS[hook]

    def register(name: str, factory: Any, **given: Any) -> None:
        check = RegisterArguments(plugin, hook.value)
        check.name(name)
        check.no_more({option: given[option] for option in given if option not in kind.options}, kind.options)
        check.factory(factory)
        if isinstance(factory, type):
            check_methods(factory, kind.protocol, plugin, f"{hook.value} {name!r}")
        # Pods get rights by the name of their source: pods of ``file``, for example, are never evicted.
        if hook is Hook.POD_SOURCE and name in BUILT_IN:
            raise AlreadyExists(f"{plugin}: the agent itself has a pod source {name!r}; choose another name")
        read = {option: _OPTIONS[option] for option in kind.options}
        values = {option: read(check, given.get(option, default)) for option, (default, read) in read.items()}
        if values.get("title") == "":
            values["title"] = name
        into.add(
            Registration(
                hook=hook,
                name=name,
                factory=factory,
                plugin=plugin.name,
                distribution=plugin.distribution,
                version=plugin.version,
                **values,
            )
        )

    register.__qualname__ = "register"  # in Python's own messages about its arguments
    return register


def _volume_sources(check: RegisterArguments, given: object) -> tuple[str, ...]:
    """Return the volume sources that a driver serves; raises InvalidConfig for one that no driver can serve."""
    sources = check.words("sources", given, required=True)
    for source in sources:
        field, colon, driver = source.partition(":")
        if field not in DRIVER_SOURCES:
            problem = f"{field!r} is not a field of a volume that a driver can serve"
            raise check.wrong("sources", problem, f"use one of: {', '.join(DRIVER_SOURCES)}")
        if colon and (field not in NAMED_DRIVERS or not driver):
            fix = (
                f"write {field!r}"
                if field not in NAMED_DRIVERS
                else f"write '{field}:' and the driver's name"
            )
            raise check.wrong("sources", f"{source!r} names no driver of {field}", fix)
    return tuple(dict.fromkeys(sources))


_OPTIONS: Final[Mapping[str, tuple[Any, Callable[[RegisterArguments, Any], Any]]]] = {
    "settings": (None, RegisterArguments.settings),
    "only_configured": (False, lambda check, value: check.boolean("only_configured", value)),
    "period_seconds": (60.0, lambda check, value: check.seconds("period_seconds", value, least=1.0)),
    "fails_open": (False, lambda check, value: check.boolean("fails_open", value)),
    "title": ("", lambda check, value: check.text("title", value)),
    "sources": ((), _volume_sources),
}
"""Keyword arguments of `register`: default value, and the function that checks a value and returns it."""
