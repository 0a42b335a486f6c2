"""Registrations of plugins other than runtime kinds: one `Registration` for each name.

A name is unique among all registrations and runtime kinds, since it is also the section of the configuration and
the state directory.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubeletx.api import AlreadyExists, InvalidConfig, PluginHost, Unsupported
from kubeletx.pods.model.sources import BUILT_IN
from kubeletx.runtimes.endpoints.kinds import KindTable

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Hook(enum.Enum):
    """Kinds of registrations; the value is shown to users."""

    HEALTH_CHECK = "health-check"
    POD_SOURCE = "pod-source"
    ADMISSION_CHECK = "admission-check"
    PANEL = "panel"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Anything but a runtime kind that a plugin registered, such as a health check.

    `plugin`: name of its entry point.
    """

    hook: Hook
    name: str
    factory: Callable[[Any, PluginHost], Any]
    settings: type[Any] | None = None
    plugin: str = ""
    period_seconds: float = 0.0
    """Period of a health check."""
    fails_open: bool = False
    """True for an admission check whose failure admits the pod."""
    title: str = ""
    """Title of a panel."""

    @property
    def label(self) -> str:
        """Kind and name, as ``health-check/disk-space``."""
        return f"{self.hook.value}/{self.name}"


class Registrations:
    """Table of all registrations by name, in the order of their addition."""

    def __init__(self, items: Iterable[Registration] = ()) -> None:
        self._items: dict[str, Registration] = {}
        for item in items:
            self.add(item)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def of(self, hook: Hook) -> tuple[Registration, ...]:
        """The registrations made by one hook."""
        return tuple(item for item in self if item.hook is hook)

    def settings(self) -> Mapping[str, type[Any] | None]:
        """The settings type that each name declares; None if it has no settings."""
        return {item.name: item.settings for item in self}

    def add(self, item: Registration) -> None:
        """Add one registration. Raises InvalidConfig for a bad name, AlreadyExists for a taken one."""
        if not NAME.fullmatch(item.name):
            raise InvalidConfig(
                obj=f"plugin {item.plugin}",
                field=f"{item.hook.value} name",
                problem=f"{item.name!r} is not a name",
                fix="use up to 63 lower-case letters, digits and dashes",
            )
        if not callable(item.factory):
            raise InvalidConfig(
                obj=f"plugin {item.plugin}",
                field=f"{item.label} factory",
                problem=f"{type(item.factory).__name__} cannot be called",
                fix="register a class or a function that takes (settings, host)",
            )
        if (other := self._items.get(item.name)) is not None:
            raise AlreadyExists(
                f"{item.label} of plugin {item.plugin or '?'}: the name is taken by {other.label} of plugin "
                f"{other.plugin or '?'}; uninstall one of them"
            )
        self._items[item.name] = item


def check_kind_names(registrations: Registrations, kinds: KindTable) -> None:
    """Raise AlreadyExists if a runtime kind and a registration have the same name."""
    for item in registrations:
        if item.name in kinds:
            raise AlreadyExists(
                f"{item.label} of plugin {item.plugin or '?'}: the name is taken by a runtime kind; uninstall one of them"
            )


def registrars(into: Registrations, plugin: str) -> Mapping[str, Callable[..., None]]:
    """Name of each hook → the `register` function for this hook of `plugin`; it adds the registration to `into`."""

    def health_check(
        name: str, factory: Any, *, period_seconds: float = 60.0, settings: type[Any] | None = None
    ) -> None:
        if not period_seconds >= 1.0:
            raise InvalidConfig(
                obj=f"plugin {plugin}",
                field=f"health-check/{name} period_seconds",
                problem=f"{period_seconds!r} is less than a second",
                fix="use 1.0 or more",
            )
        into.add(
            Registration(
                hook=Hook.HEALTH_CHECK,
                name=name,
                factory=factory,
                settings=settings,
                plugin=plugin,
                period_seconds=period_seconds,
            )
        )

    def pod_source(name: str, factory: Any, *, settings: type[Any] | None = None) -> None:
        if name in BUILT_IN:
            raise AlreadyExists(
                f"plugin {plugin}: the agent itself has a pod source {name!r}; choose another name"
            )
        into.add(
            Registration(hook=Hook.POD_SOURCE, name=name, factory=factory, settings=settings, plugin=plugin)
        )

    def admission_check(
        name: str, factory: Any, *, fails_open: bool = False, settings: type[Any] | None = None
    ) -> None:
        into.add(
            Registration(
                hook=Hook.ADMISSION_CHECK,
                name=name,
                factory=factory,
                settings=settings,
                plugin=plugin,
                fails_open=fails_open,
            )
        )

    def panel(name: str, factory: Any, *, title: str = "", settings: type[Any] | None = None) -> None:
        into.add(
            Registration(
                hook=Hook.PANEL,
                name=name,
                factory=factory,
                settings=settings,
                plugin=plugin,
                title=title or name,
            )
        )

    return {
        "kubeletx_register_health_checks": health_check,
        "kubeletx_register_pod_sources": pod_source,
        "kubeletx_register_admission_checks": admission_check,
        "kubeletx_register_panels": panel,
        "kubeletx_register_volume_drivers": _refusing("volume driver", plugin),
        "kubeletx_register_remedies": _refusing("remedy", plugin),
    }


def _refusing(what: str, plugin: str) -> Callable[..., None]:
    """A `register` function that refuses: the hook is reserved but not implemented."""

    def refuse(name: str, *_: object, **__: object) -> None:
        raise Unsupported(f"plugin {plugin}: {what} {name!r}: this agent does not support it yet")

    return refuse
