"""`origin_of`: which plugin raised an exception, and at which line."""

from __future__ import annotations

from kubeletx.runtimes.plugins.failures import package_of, place_of
from kubeletx.runtimes.plugins.identity import PluginIdentity

from .installed import installed_plugins


def origin_of(error: BaseException) -> tuple[PluginIdentity | None, str]:
    """Return the installed plugin whose package raised the exception, and ``file:line`` of the innermost call there.

    Without such a plugin the first is None, and the place is that of the innermost call outside the agent. Blocks
    briefly, since it reads the metadata of all installed distributions.
    """
    packages = {
        package_of(one.source.partition(":")[0].strip()): one for one in installed_plugins() if one.source
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
