"""`installed_plugins`: finds the entry points in group ``kubeletx`` of all installed distributions.

Metadata of any distribution may be damaged: an interrupted uninstall, for example, leaves entry points without a name and
version. Such a distribution costs at most its own plugins, which are failed with the path of its metadata.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, EntryPoint, distributions

import msgspec

from kubeletx.api import ENTRY_POINT_GROUP
from kubeletx.runtimes.plugins.failures import package_of, place_of, words_of
from kubeletx.runtimes.plugins.identity import PluginIdentity

from .candidates import FAILED, LoadedPlugin
from .versions import required_versions


def installed_plugins(directories: Iterable[str] | None = None) -> list[LoadedPlugin]:
    """Return the installed plugins, sorted by name, none of them imported.

    A `reason` says why a plugin cannot be loaded: its metadata are damaged. `directories`: searched for distributions;
    None: the import path. Blocks briefly.
    """
    by_name: dict[str, list[LoadedPlugin]] = {}
    for dist in distributions() if directories is None else distributions(path=list(directories)):
        name = _first_name(dist) or _path_of(dist)
        # An earlier directory of the import path hides a later one, except what an interrupted uninstall left in it.
        if name not in by_name or any(plugin.reason for plugin in by_name[name]):
            plugins = list(_plugins_of(dist))
            if name not in by_name or (plugins and not any(plugin.reason for plugin in plugins)):
                by_name[name] = plugins
    return sorted(itertools.chain.from_iterable(by_name.values()), key=lambda plugin: plugin.name)


def described(point: EntryPoint) -> LoadedPlugin:
    """Return the plugin of an entry point; its `reason` says what of the metadata is damaged, else it is empty."""
    about = LoadedPlugin(name=point.name, distribution="", version="", state=FAILED, source=point.value)
    problem = "" if EntryPoint.pattern.match(point.value) else "the entry point names no module"
    if (dist := point.dist) is None:
        return about if not problem else _damaged(about, problem, "")
    path = _path_of(dist)
    try:
        fields = dist.metadata  # parsed at each access
        about = msgspec.structs.replace(
            about,
            distribution=(fields.get_all("Name") or [""])[0],
            version=(fields.get_all("Version") or [""])[0],
            made_for=required_versions(fields.get_all("Requires-Dist") or dist.requires),
        )
        if not about.distribution or not about.version:
            problem = problem or f"METADATA has no {'Version' if about.distribution else 'Name'}"
    except Exception as error:  # noqa: BLE001 - importlib.metadata raises anything for a garbled file
        problem = problem or f"METADATA: {words_of(error)}"
    if not problem:
        return about
    if not (_text_of(dist, "METADATA") or _text_of(dist, "PKG-INFO")):
        problem = "METADATA is missing"
    named = msgspec.structs.replace(about, distribution=about.distribution or _first_name(dist) or path)
    return _damaged(named, problem, path)


def _plugins_of(dist: Distribution) -> Iterator[LoadedPlugin]:
    try:
        points = [point for point in dist.entry_points if point.group == ENTRY_POINT_GROUP]
    except Exception as error:  # noqa: BLE001 - as above
        if f"[{ENTRY_POINT_GROUP}]" not in _text_of(dist, "entry_points.txt"):
            return  # a distribution without plugins, whose metadata do not matter here
        problem = f"entry_points.txt: {words_of(error)}"
    else:
        yield from map(described, points)
        return
    name = _first_name(dist) or "?"
    about = LoadedPlugin(name=name, distribution=name, version="", state=FAILED)
    yield _damaged(about, problem, _path_of(dist))


def _damaged(about: LoadedPlugin, problem: str, path: str) -> LoadedPlugin:
    where = f" of {path}" if path else ""
    what = (
        f"{problem} (entry point {about.name} = {about.source}{where})"
        if about.source
        else f"{problem} ({path})"
    )
    fix = "install the distribution again, or remove this directory" if path else "correct it"
    return msgspec.structs.replace(about, reason=f"{what}; {fix}")


def _first_name(dist: Distribution) -> str:
    """Return the distribution's name by the name of its directory, without a look at its files, where that has it."""
    try:
        return str(dist._normalized_name)  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - as above
        return ""


def _path_of(dist: Distribution) -> str:
    return str(getattr(dist, "_path", ""))


def _text_of(dist: Distribution, file: str) -> str:
    try:
        return dist.read_text(file) or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")
    except Exception:  # noqa: BLE001 - as above
        return ""


def origin_of(error: BaseException) -> tuple[PluginIdentity | None, str]:
    """Return the installed plugin whose package raised the exception, and ``file:line`` of the innermost call there.

    Without such a plugin the first is None, and the place is the innermost call outside the agent. Blocks
    briefly, since it reads the metadata of all installed distributions.
    """
    packages = {
        package_of(plugin.source.partition(":")[0].strip()): plugin
        for plugin in installed_plugins()
        if plugin.source
    }
    modules = []
    step = error.__traceback__
    while step is not None:
        modules.append(str(step.tb_frame.f_globals.get("__name__", "")))
        step = step.tb_next
    for module in reversed(modules):
        for package, plugin in packages.items():
            if module == package or module.startswith(f"{package}."):
                return plugin.identity, place_of(error, package)
    return None, _no_loop(place_of(error))


def _no_loop(place: str) -> str:
    """Return the place; empty if it is a line of asyncio or threading, which called the plugin's function."""
    return "" if "/asyncio/" in place or "/threading.py" in place else place
