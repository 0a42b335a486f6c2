"""Programs that serve runtimes of the kind ``exec``, as ``kubeletx plugins`` shows them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from kubeletx.runtimes.endpoints.programs import PROGRAMS
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import PluginView

from .plugin_processes import process_of


def program_views(registry: RuntimeRegistry) -> tuple[PluginView, ...]:
    """Return one plugin for each program of an endpoint, in the order of the runtimes."""
    by_path: dict[str, list[RuntimeHandle]] = {}
    for handle in registry.handles():
        if handle.kind == PROGRAMS.name:
            by_path.setdefault(unquote(urlsplit(handle.endpoint.url).path), []).append(handle)
    return tuple(_view(registry, path, handles) for path, handles in by_path.items())


def _view(registry: RuntimeRegistry, path: str, handles: Iterable[RuntimeHandle]) -> PluginView:
    handles = tuple(handles)
    broken = [one for one in handles if not one.state.is_ready]
    versions = dict.fromkeys(one.last_version.version for one in handles if one.last_version is not None)
    processes = [process_of(registry, one.name) for one in handles]
    return PluginView(
        name=PurePath(path).name or PROGRAMS.name,
        distribution=path,
        version=",".join(versions),
        state="degraded" if broken else "ready",
        kinds=(PROGRAMS.name,),
        workload_types=tuple(sorted({one.workload_type for one in handles})),
        reason="; ".join(f"runtime {one.name}: {one.state.message}" for one in broken),
        isolation="process",
        processes=tuple(one for one in processes if one is not None),
    )
