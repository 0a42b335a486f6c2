"""`ServicesModel`: the plugin services of an agent with one stranger's distribution, which runs in a real child."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.api import ObjectRef, Records
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.plugins.callbacks import Callbacks
from kubeletx.plugins.health import LastCheck
from kubeletx.plugins.host import PluginHostParts
from kubeletx.plugins.isolated.process import PluginProcess
from kubeletx.plugins.loading import load_plugins
from kubeletx.plugins.services import PluginServices
from kubeletx.plugins.volume_drivers import PluginVolumeDriver
from kubeletx.pods import Rejection, Waiting
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.testing import FakeClock, FakeEventSink, FakeRecords
from kubeletx_testing.waiting import until
from tests.unit.plugins.plugin_sites import Site
from tests.unit.volumes.volume_doubles import FakeCluster

TEXT = (Path(__file__).parent / "troubled.py.txt").read_text()


class ServicesModel:
    """The services of distribution ``troubled``, whose plugin does what its files say."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        self.site = Site(path / "site")
        self.site.install("troubled", {"site_troubled/plugin.py": TEXT, "site_troubled/__init__.py": ""})
        self.clock = FakeClock()
        self.events = FakeEventSink()
        self.cluster = FakeCluster()
        self.kinds: dict[str, FakeRecords] = {}
        self.isolation: dict[str, str] = {}
        self.sections: dict[str, Any] = {}

    @cached_property
    def services(self) -> PluginServices:
        """The services, with the plugin loaded as the agent loads it."""
        plugins = load_plugins(self.site.entry_points())
        assert [one.reason for one in plugins.loaded] == [""]
        return PluginServices(
            plugins.registrations,
            parts=PluginHostParts(
                node_name="node-1",
                root=self.root,
                clock=self.clock,
                events=self.events,
                records=self._records,
                cluster=self.cluster,  # type: ignore[arg-type]
            ),
            own_settings=plugins.decode_settings(self.sections),
            settings=PluginSettings(variables=("REGION",)),
            markers=CallMarkers(self.root),
            node=ObjectRef(kind="Node", name="node-1"),
            isolation=self.isolation,
        )

    def _records(self, kind: str) -> Records:
        return self.kinds.setdefault(kind, FakeRecords())

    def order(self, name: str, text: str) -> None:
        """Let the registration's object do this in its next calls."""
        self.file(name, "order").write_text(text)

    def file(self, name: str, file: str) -> Path:
        """A file in the registration's state directory."""
        path = self.root / "plugins" / name
        path.mkdir(parents=True, exist_ok=True)
        return path / file

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while none runs."""
        usage = self.services.usage("troubled")
        return usage.pid if usage is not None else None

    @property
    def restarts(self) -> int:
        """Number of children after the first one, by the agent's own count."""
        usage = self.services.usage("troubled")
        assert usage is not None
        return usage.restarts

    @property
    def process(self) -> PluginProcess:
        """The agent's side of the child."""
        assert self.services.processes is not None
        (process,) = self.services.processes.by_distribution.values()
        return process

    async def ended(self) -> None:
        """Wait until the agent has ended its child, which did not answer."""
        await until(lambda: not self.process.is_starting and self.pid is None)

    def wait_over(self) -> None:
        """End the delay before the next start of a child."""
        self.process.kept.not_before = 0.0

    async def check(self, name: str = "t-check") -> LastCheck:
        """Run one health check once, as the agent does."""
        checks = self.services.health_checks
        (check,) = [check for check in checks.checks if check.name == name]
        return await checks.look(check)

    async def panel(self) -> Any:
        """The content of the panel."""
        return await self.services.panels.show("t-panel")

    async def review(self, name: str) -> Rejection | Waiting | None:
        """Review a pod of this name with both admission checks."""
        assert self.services.review is not None
        pod = Pod(
            metadata=ObjectMeta(name=name, namespace="default", uid="u"),
            spec=PodSpec(containers=(Container(name="main", image="busybox"),)),
        )
        return await self.services.review(pod)

    @property
    def disks(self) -> PluginVolumeDriver:
        """The volume driver, as the agent calls it."""
        (driver,) = self.services.volume_drivers
        return driver

    @property
    def disk_calls(self) -> list[str]:
        """Calls of the volume driver in all children, each with the process id."""
        path = self.file("t-disks", "calls")
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def callbacks(self, name: str) -> Callbacks:
        """State of one registration."""
        return self.services.callbacks[name]

    async def close(self) -> None:
        """End the services, if they were made."""
        if "services" in self.__dict__:
            await self.services.close()
        self.site.close()
        self.site.forget()
