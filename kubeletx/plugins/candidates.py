"""`LoadedPlugin` and `Candidate`: a plugin that was found, with its state, and what it registered."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeletx.runtimes.endpoints.failed_plugins import FailedPlugin
from kubeletx.runtimes.endpoints.kinds import RuntimeKind
from kubeletx.runtimes.plugins.identity import PluginIdentity

from .registrations import Registration

READY: Final = "ready"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
DISABLED: Final = "disabled"

_SOURCE: Final = "volume source "


class InstalledPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a process needs to import a plugin.

    `source`: its entry point, as ``module`` or ``module:object``; empty if it cannot be read. `made_for`: versions of
    kubeletx that its distribution requires, such as ``>=0.1,<0.2``; empty: it requires none.
    """

    name: str
    distribution: str
    version: str
    source: str = ""
    made_for: str = ""


class LoadedPlugin(InstalledPlugin, frozen=True, kw_only=True):
    """A plugin that was found, with the result of loading it.

    `state`: ready, skipped (it registers nothing that can be used now), failed, or disabled by the configuration.
    `reason`: of this state.
    """

    state: str
    reason: str = ""
    kinds: tuple[str, ...] = ()
    workload_types: tuple[str, ...] = ()
    registrations: tuple[Registration, ...] = ()
    """Registrations of the plugin other than runtime kinds."""
    traceback: str = ""
    """Traceback of the exception that prevented the load, for the debug log; empty without one."""

    @property
    def identity(self) -> PluginIdentity:
        return PluginIdentity(self.name, self.distribution, self.version)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An imported plugin, with what its hooks registered; this is not in the agent's tables yet.

    `about.state` is failed if the import or a hook failed; then `is_known` is False, since what the plugin registers is
    not known.
    """

    about: LoadedPlugin
    kinds: tuple[RuntimeKind, ...] = ()
    registrations: tuple[Registration, ...] = ()
    is_known: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names that no other plugin may register: of runtime kinds, other registrations, and sources of volumes."""
        sources = (f"{_SOURCE}{source}" for item in self.registrations for source in item.sources)
        return (*(kind.name for kind in self.kinds), *(item.name for item in self.registrations), *sources)

    def label(self, name: str) -> str:
        """Return kind and name of what is registered as `name`, such as ``health-check/disk-space``."""
        if name.startswith(_SOURCE):
            return name
        return next(
            (item.label for item in self.registrations if item.name == name), f"runtime kind {name!r}"
        )

    def failed(self, about: LoadedPlugin) -> FailedPlugin | None:
        """Return what endpoints need of the plugin if it is not loaded; None if it is ready or skipped.

        `about`: its final state.
        """
        if about.state not in (FAILED, DISABLED):
            return None
        return FailedPlugin(
            plugin=about.identity,
            reason=about.reason,
            kinds=self.kinds,
            names=tuple(item.name for item in self.registrations),
            knows_kinds=self.is_known,
        )
