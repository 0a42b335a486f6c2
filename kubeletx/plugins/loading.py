"""Finds and loads plugins: installed entry points in group ``kubeletx``.

A plugin that cannot be loaded does not prevent the others from being loaded.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Set
from importlib.metadata import EntryPoint
from typing import Any, Final

import msgspec
import pluggy
import structlog

from kubeletx import __version__
from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, KubeletxError, Unavailable, hookspecs
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.endpoints.programs import PROGRAMS
from kubeletx.runtimes.plugins.call_markers import CallMarkers, own_interrupts
from kubeletx.runtimes.plugins.failures import message_of, package_of, place_of, words_for_users
from kubeletx.runtimes.plugins.identity import normal_name

from .candidates import DISABLED, FAILED, READY, SKIPPED, Candidate, LoadedPlugin
from .claims import settle_claims
from .hook_names import check_hook_names, no_hooks
from .installed import described, installed_plugins
from .registrations import Registrations, check_kind_names, registrars
from .versions import missing_name_problem, range_problem

log = structlog.get_logger(__name__)

LOAD_SECONDS: Final = 30.0
"""Longest deadline of one plugin's import and hooks."""
_LONGEST = 20_000
_HOOK = re.compile(r"\w*register_\w+")


class Plugins(msgspec.Struct, frozen=True, kw_only=True):
    """All plugins that were found, sorted by name, and what they registered.

    `kinds`: runtime kinds. `registrations`: everything else, such as health checks.
    """

    loaded: tuple[LoadedPlugin, ...]
    kinds: KindTable
    registrations: Registrations = msgspec.field(default_factory=Registrations)
    not_installed: tuple[str, ...] = ()
    """Disabled names that no installed plugin or distribution has."""

    def decode_settings(self, sections: Mapping[str, Any], origin: str = "") -> dict[str, Any]:
        """Decode the settings of every runtime kind and registration, and return them by name.

        `sections`: the plugins' sections of the configuration. `origin`: the file that contains them. Raises
        InvalidConfig as `KindTable.decode_settings`.
        """
        return self.kinds.decode_settings(sections, origin, self.registrations.settings())


def load_plugins(
    sources: Iterable[EntryPoint | LoadedPlugin] | None = None,
    *,
    reported: Iterable[Candidate] = (),
    disabled: Collection[str] = (),
    markers: CallMarkers | None = None,
    sections: Mapping[str, Any] | None = None,
    origin: str = "",
) -> Plugins:
    """Load every plugin, in the order of names. `sources`: the plugins to load; None: all installed ones.

    `reported`: the plugins that child processes have imported; all others are imported in this process. `disabled`:
    names of plugins or distributions that are not imported. `markers`: remember an import that ends the process;
    None: no files are read or written. `sections`: the plugins' sections of the configuration, and `origin` the file
    that contains them; a plugin of others for which they are wrong is failed. None: they are not checked.
    """
    plugins = installed_plugins() if sources is None else _sorted(sources)
    elsewhere = {candidate.about.identity: candidate for candidate in reported}
    markers = markers or CallMarkers(None)
    kinds, registrations = KindTable([PROGRAMS]), Registrations()
    candidates = [
        disabled_candidate(plugin)
        if is_disabled(plugin, disabled)
        else elsewhere.get(plugin.identity) or load_candidate(plugin, markers)
        for plugin in plugins
    ]
    settled = settle_claims(candidates)
    if sections is not None:
        settled = tuple(check_settings(candidate, sections, origin) for candidate in settled)
    loaded = [take_over(candidate, kinds, registrations) for candidate in settled]
    unknown = tuple(word for word in disabled if not any(is_disabled(plugin, [word]) for plugin in plugins))
    return Plugins(loaded=tuple(loaded), kinds=kinds, registrations=registrations, not_installed=unknown)


def check_settings(candidate: Candidate, sections: Mapping[str, Any], origin: str = "") -> Candidate:
    """Return the candidate; a failed one if the configuration has a wrong or lacks a required setting of the plugin.

    A plugin of this repository is returned unchanged: its wrong settings prevent the start. `sections`, `origin`: as for
    `load_plugins`.
    """
    about = candidate.about
    if about.state != READY or about.identity.is_own:
        return candidate
    own = {name: section for name, section in sections.items() if name in candidate.names}
    try:
        registrations = Registrations(candidate.registrations)
        KindTable(candidate.kinds).decode_settings(own, origin, registrations.settings())
    except InvalidConfig as error:
        reason = f"{error}; then restart the agent"
        return msgspec.structs.replace(
            candidate, about=msgspec.structs.replace(about, state=FAILED, reason=reason)
        )
    return candidate


def is_disabled(plugin: LoadedPlugin, disabled: Collection[str]) -> bool:
    """Return True if `disabled` contains the name of the plugin or of its distribution."""
    own = normal_name(plugin.distribution)
    return any(word == plugin.name or (own and normal_name(word) == own) for word in disabled)


def disabled_candidate(plugin: LoadedPlugin) -> Candidate:
    """Return the candidate of a plugin that is disabled, and therefore not imported."""
    reason = "disabled by --disable-plugin or kubeletx.disabledPlugins; remove it there to load the plugin"
    return Candidate(about=msgspec.structs.replace(plugin, state=DISABLED, reason=reason))


def log_plugins(plugins: Plugins) -> None:
    """Log one line for each plugin: a warning if it failed, a debug message otherwise."""
    for plugin in plugins.loaded:
        log_plugin(plugin)
    for name in plugins.not_installed:
        log.warning("Disabled plugin is not installed", plugin=name)


def log_plugin(plugin: LoadedPlugin) -> None:
    """Log one line for the plugin: a warning if it failed, a debug message otherwise.

    The traceback of an exception that prevented the load is a debug message of its own.
    """
    report = log.warning if plugin.state == FAILED else log.debug
    report(
        "Loaded plugin",
        plugin=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        state=plugin.state,
        err=plugin.reason,
    )
    if plugin.traceback:
        log.debug(
            "Traceback of the plugin's exception",
            plugin=plugin.name,
            distribution=plugin.distribution,
            exception=plugin.traceback,
        )


def load_candidate(about: LoadedPlugin, markers: CallMarkers | None = None) -> Candidate:
    """Import one plugin and call its hooks, on any thread.

    An error of the plugin is not raised; it is in `about` of the result. That holds for SystemExit and a
    KeyboardInterrupt of the plugin too; only a SIGINT raises KeyboardInterrupt, see `own_interrupts`. `about`: the
    installed plugin, see `installed_plugins`. `markers`: as for `load_plugins`.
    """
    if about.reason:
        return Candidate(about=about)
    if reason := range_problem(str(about.identity), about.made_for, __version__):
        return Candidate(about=msgspec.structs.replace(about, reason=reason))
    point = EntryPoint(name=about.name, value=about.source, group=ENTRY_POINT_GROUP)
    before = set(sys.modules)
    with own_interrupts():
        try:
            with (markers or CallMarkers(None)).around("import", point.name, about.identity):
                return _register(about, point.load())
        except BaseException as error:  # noqa: BLE001 - code of a plugin may raise anything, SystemExit too
            missing = missing_name_problem(error, str(about.identity), about.made_for, __version__, _names_of)
            place, trace = place_of_failure(point, error), traceback_of(error)
            words = missing or words_for_users(error)
            reason = f"{words} ({place})" if place else words
    _forget_modules(point, before)
    return Candidate(about=msgspec.structs.replace(about, reason=reason, traceback=trace))


def _sorted(sources: Iterable[EntryPoint | LoadedPlugin]) -> list[LoadedPlugin]:
    plugins = [described(item) if isinstance(item, EntryPoint) else item for item in sources]
    return sorted(plugins, key=lambda plugin: plugin.name)


def take_over(candidate: Candidate, kinds: KindTable, registrations: Registrations) -> LoadedPlugin:
    """Add everything that the candidate registered to `kinds` and `registrations`; return the plugin with its state.

    If it has failed or one of its names is taken, it is added to `kinds.failed` only, and the state is failed.
    """
    about = _taken_over(candidate, kinds, registrations)
    others = [failed for failed in kinds.failed if failed.plugin.key != about.identity.key]
    failed = candidate.failed(about)
    kinds.failed = (*others, failed) if failed is not None else tuple(others)
    return about


def _taken_over(candidate: Candidate, kinds: KindTable, registrations: Registrations) -> LoadedPlugin:
    if candidate.about.state in (FAILED, DISABLED):
        return candidate.about
    try:  # check all names before the first registration is added
        all_kinds = KindTable((*kinds, *candidate.kinds))
        check_kind_names(Registrations((*registrations, *candidate.registrations)), all_kinds)
    except KubeletxError as error:
        return msgspec.structs.replace(candidate.about, state=FAILED, reason=str(error))
    for kind in candidate.kinds:
        kinds.add(kind)
    for registration in candidate.registrations:
        registrations.add(registration)
    types = tuple(sorted({word for kind in candidate.kinds for word in kind.workload_types}))
    return msgspec.structs.replace(
        candidate.about,
        kinds=tuple(kind.name for kind in candidate.kinds),
        workload_types=types,
        registrations=candidate.registrations,
    )


def _names_of(module: str) -> Iterable[str]:
    loaded = sys.modules.get(module)
    names = {*dir(loaded), *getattr(loaded, "__all__", ())}
    return sorted(name for name in names if not name.startswith("_"))


def _register(about: LoadedPlugin, plugin: object) -> Candidate:
    check_hook_names(plugin, about.identity)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=about.name)
    manager.check_pending()
    own_kinds, own = KindTable(), Registrations()
    hooks = {
        "kubeletx_register_runtimes": own_kinds.registrar(about.name, about.distribution, about.version),
        **registrars(own, about.identity),
    }
    for name, register in hooks.items():
        _refuse_coroutines(about.name, name, getattr(manager.hook, name)(register=register))
    kinds = tuple(own_kinds)
    registrations = tuple(msgspec.structs.replace(registration, source=about.source) for registration in own)
    if not kinds and not registrations:
        reason = no_hooks(plugin)
        return Candidate(about=msgspec.structs.replace(about, state=SKIPPED, reason=reason), is_known=True)
    check_kind_names(own, own_kinds)
    ready = msgspec.structs.replace(about, state=READY)
    return Candidate(about=ready, kinds=kinds, registrations=registrations, is_known=True)


def _refuse_coroutines(plugin: str, hook: str, results: Iterable[object]) -> None:
    for result in results:
        if inspect.iscoroutine(result):
            result.close()
            raise InvalidConfig(
                obj=plugin,
                field=hook,
                problem="the hook is a coroutine function",
                fix="make it a plain function: hooks only register",
            )


def _forget_modules(point: EntryPoint, before: Set[str]) -> None:
    """Unload the modules of the plugin's package after a failed import, so that it can be imported again.

    `before`: names of the modules that were loaded before; if the package is among them, nothing is unloaded.
    """
    package = point.module.partition(".")[0]
    if package in before:
        return
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            del sys.modules[name]


def place_of_failure(point: EntryPoint, error: BaseException) -> str:
    """Return where the plugin failed to load, as words that follow the error.

    This is ``file:line`` of the plugin's code that raised the exception, else of the hook that the exception names, else
    the file of the plugin's module. If nothing of the plugin was imported, it is the entry point; empty for an
    Unavailable, which the agent raises itself before the import.
    """
    if place := place_of(error, package_of(point.module)):
        return f"at {place}"
    if isinstance(error, Unavailable):
        return ""
    module = sys.modules.get(point.module)
    for name in _HOOK.findall(message_of(error) or ""):
        code = getattr(getattr(module, name, None), "__code__", None)
        if code is not None:
            return f"at {code.co_filename}:{code.co_firstlineno}"
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return f"at {file}"
    return f"entry point {point.name} = {point.value}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it; a short text if the plugin's own code prevents it."""
    try:
        return "".join(traceback.format_exception(error))[-_LONGEST:].rstrip("\n")
    except BaseException:  # noqa: BLE001 - the text of an exception is code of the plugin too
        return f"{type(error).__name__}: its traceback cannot be printed"
