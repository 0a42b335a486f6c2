"""Describes what a distribution registers, in a process of its own: ``python -m kubeletx.testing.check.found DIST``.

An import that hangs, or that ends its process, therefore does not end the check.
"""

from __future__ import annotations

import faulthandler
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
import msgspec

from kubeletx.api import CAPABILITIES, ENTRY_POINT_GROUP
from kubeletx.plugins.loading import load_plugins
from kubeletx.plugins.registrations import Registration
from kubeletx.runtimes.endpoints.kinds import RuntimeKind
from kubeletx.runtimes.plugins.required_methods import missing_methods

from ..host import FakeHost, endpoint

LOAD_SECONDS = 30.0
"""Time limit for the import and the hooks of all plugins of a distribution; the agent's own when it runs."""


class Capability(msgspec.Struct, frozen=True):
    """A capability that a runtime declares. `methods`: of its protocol. `missing`: those that the runtime lacks."""

    name: str
    methods: tuple[str, ...]
    missing: tuple[str, ...]


class Registered(msgspec.Struct, frozen=True):
    """One thing that a plugin registers. `hook`: such as ``runtime``. `about`: its other arguments, for people.

    `capabilities` None: not known; `unknown` is the reason.
    """

    hook: str
    name: str
    about: str
    capabilities: tuple[Capability, ...] | None = ()
    unknown: str = ""
    schemes: tuple[str, ...] = ()
    """URLs that a runtime serves, such as ``process://``."""


class FoundPlugin(msgspec.Struct, frozen=True):
    """One entry point of the distribution. `state` and `reason`: as ``kubeletx plugins`` shows them."""

    name: str
    module: str
    state: str
    reason: str = ""
    made_for: str = ""
    registered: tuple[Registered, ...] = ()


def find(name: str, load_seconds: float = LOAD_SECONDS) -> tuple[tuple[FoundPlugin, ...], str]:
    """Load the plugins of an installed distribution in a child process; return them, and the reason if that failed."""
    command = [sys.executable, "-m", __name__, name, str(load_seconds)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=load_seconds + 15,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return (), f"its import did not end within {load_seconds:g} s"
    if done.returncode == 0 and done.stdout:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=tuple[FoundPlugin, ...]), ""
    if "Timeout (" in done.stderr:
        return (), f"its import did not end within {load_seconds:g} s{_place(done.stderr)}"
    last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return (), f"its import ended the process with exit code {done.returncode}: {last}"


def _place(stacks: str) -> str:
    """Return the innermost line of the main thread that belongs neither to Python nor to kubeletx."""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', stacks):
        if not file.startswith(("<", sys.base_prefix, str(Path(__file__).parents[2]))):
            return f"; it hangs at {file}:{line}"
    return ""


def describe(name: str) -> tuple[FoundPlugin, ...]:
    """Load the plugins of an installed distribution in this process and describe them."""
    points = [point for point in distribution(name).entry_points if point.group == ENTRY_POINT_GROUP]
    plugins = load_plugins(points)
    modules = {point.name: point.module for point in points}
    return tuple(
        FoundPlugin(
            plugin.name,
            modules[plugin.name],
            plugin.state,
            plugin.reason,
            plugin.made_for,
            (
                *(_runtime(kind) for kind in plugins.kinds if kind.name in plugin.kinds),
                *(Registered(item.hook.value, item.name, _about(item)) for item in plugin.registrations),
            ),
        )
        for plugin in plugins.loaded
    )


def _about(item: Registration) -> str:
    sources = f"volumes: {', '.join(item.sources)}; " if item.sources else ""
    return f"{sources}settings: {_settings(item.settings)}"


def _settings(settings: type[Any] | None) -> str:
    return "none" if settings is None else settings.__name__


def _runtime(kind: RuntimeKind) -> Registered:
    urls = tuple(f"{scheme}://" for scheme in kind.schemes)
    about = (
        f"workload types: {', '.join(kind.workload_types)}; URLs: {', '.join(urls)}; "
        f"settings: {_settings(kind.settings)}"
    )
    thing: object = kind.factory
    if not hasattr(thing, "capabilities"):
        try:
            thing = _made(kind)
        except Exception as error:  # noqa: BLE001 (any error of the plugin)
            reason = f"the runtime cannot be made without its endpoint: {type(error).__name__}: {error}"
            return Registered("runtime", kind.name, about, None, reason, urls)
    declared = [capability for capability in CAPABILITIES if _declares(thing, capability)]
    capabilities = tuple(
        Capability(protocol.__name__, tuple(_methods(protocol)), missing_methods(thing, protocol))
        for protocol in declared
    )
    return Registered("runtime", kind.name, about, capabilities, schemes=urls)


def _made(kind: RuntimeKind) -> Any:
    settings = None if kind.settings is None else msgspec.convert({}, kind.settings)
    with tempfile.TemporaryDirectory() as directory:
        return kind.factory(
            endpoint(f"{kind.schemes[0]}:///", kind=kind.name), settings, FakeHost(Path(directory))
        )


def _declares(thing: Any, protocol: type) -> bool:
    declared = getattr(thing, "capabilities", None)
    if isinstance(declared, tuple | list | set | frozenset):
        return protocol in declared
    return thing.capability(protocol) is not None


def _methods(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if callable(value) and name[0] != "_"]


if __name__ == "__main__":
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    text = msgspec.json.encode(describe(sys.argv[1])).decode()
    faulthandler.cancel_dump_traceback_later()
    click.echo(f"\n{text}")
