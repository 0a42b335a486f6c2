"""A directory of installed distributions, as pip leaves one, for tests that install plugins."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from kubeletx.api import ENTRY_POINT_GROUP
from kubeletx.plugins.candidates import LoadedPlugin
from kubeletx.plugins.installed import installed_plugins

PLUGIN = """\
from kubeletx.api import hookimpl

def make(endpoint, settings, host):
    return object()

@hookimpl
def kubeletx_register_runtimes(register):
    register({kind!r}, {factory}, workload_types={types!r}, schemes=({kind!r},), default_claim={claims!r})
"""


class Site:
    """Distributions below one directory, which must be on `sys.path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(exist_ok=True)
        self.at_end: list[Callable[[], None]] = []

    def close(self) -> None:
        """End what the test made with these distributions."""
        for call in self.at_end:
            call()

    def install(self, name: str, modules: dict[str, str], *, version: str = "1.0", plugins: str = "") -> None:
        """A distribution `name` with these files; `plugins`: lines of its entry points, by default one of its name."""
        for file, text in modules.items():
            target = self.path / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            shutil.rmtree(target.parent / "__pycache__", ignore_errors=True)
        self.uninstall(name)
        info = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = plugins or f"{name} = {next(iter(modules)).removesuffix('.py').replace('/', '.')}"
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}\n")

    def install_plugin(
        self,
        name: str,
        *,
        kind: str = "",
        version: str = "1.0",
        factory: str = "make",
        types: tuple[str, ...] = ("container",),
        claims: bool = False,
        head: str = "",
    ) -> None:
        """A distribution whose plugin registers one kind, by default called like the distribution."""
        text = PLUGIN.format(kind=kind or name, factory=factory, types=types, claims=claims)
        self.install(
            name, {f"site_{name}/plugin.py": head + text, f"site_{name}/__init__.py": ""}, version=version
        )

    def uninstall(self, name: str) -> None:
        """Remove its metadata; the modules stay, as those that are imported do."""
        for info in self.path.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(info)

    def entry_points(self) -> list[EntryPoint]:
        """The plugins of these distributions alone."""
        found = distributions(path=[str(self.path)])
        return [point for one in found for point in one.entry_points if point.group == ENTRY_POINT_GROUP]

    def plugins(self) -> list[LoadedPlugin]:
        """The same plugins, as the agent finds them."""
        return installed_plugins([str(self.path)])

    def forget(self) -> None:
        """Unload the modules of plugins that a test imported."""
        for module in [one for one in sys.modules if one.partition(".")[0].startswith("site_")]:
            del sys.modules[module]
