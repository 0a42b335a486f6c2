"""A factory of a health check, pod source, admission check or panel that ends the agent's process ends it once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.plugins.callbacks import CallbackCounts, Callbacks
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.testing import FakeClock
from tests.unit.plugins.plugin_sites import Site

PLUGIN = """\
import os
from kubeletx.api import hookimpl

class Check:
    async def check(self): ...

def kills(settings, host):
    if os.path.exists({path!r}):
        os._exit(7)
    return Check()

@hookimpl
def kubeletx_register_health_checks(register):
    register("disk", kills)
    register("other", lambda settings, host: Check())
"""
START = """\
import sys
from importlib.metadata import distributions
from pathlib import Path
from kubeletx.agent.config.tree import PluginSettings
from kubeletx.plugins.loading import load_plugins
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.plugins.host import PluginHostParts
from kubeletx.plugins.services import PluginServices
from kubeletx.api import ObjectRef
from kubeletx.testing import FakeClock

sys.path.insert(0, sys.argv[1])
points = [point for one in distributions(path=[sys.argv[1]]) for point in one.entry_points]
parts = PluginHostParts(
    node_name="n", root=Path(sys.argv[2]), clock=FakeClock(), events=None, records=None
)
services = PluginServices(
    load_plugins(points).registrations, parts=parts, own_settings={}, settings=PluginSettings(),
    markers=CallMarkers(parts.root), node=ObjectRef(kind="Node", name="n"), isolation={"disk": "none", "other": "none"},
)
for name, state in services.states().items():
    print(name, state.word, state.reason)
"""


def test_a_factory_that_ends_the_process_ends_it_once(tmp_path: Path) -> None:
    kills, root, site = tmp_path / "kills", tmp_path / "root", Site(tmp_path / "site")
    kills.touch()
    site.install("bad", {"site_bad.py": PLUGIN.format(path=str(kills))})
    start = [sys.executable, "-c", START, str(site.path), str(root)]
    assert subprocess.run(start, capture_output=True, text=True, timeout=60, check=False).returncode == 7
    second = subprocess.run(start, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 0, second.stderr
    marker = root / "plugin-calls" / "factory.disk"
    assert "disk failed" in second.stdout
    assert "plugin bad (bad 1.0)" in second.stdout
    assert f"rm '{marker}' && systemctl restart kubeletx" in second.stdout
    assert "other ready" in second.stdout
    kills.unlink()
    marker.unlink()
    third = subprocess.run(start, capture_output=True, text=True, timeout=60, check=True)
    assert "disk ready" in third.stdout
    assert not marker.exists()


@pytest.mark.parametrize("error", [ValueError("no url"), SystemExit(2)])
def test_the_traceback_of_a_factory_is_in_the_debug_log(error: BaseException) -> None:
    def fails() -> None:
        raise error

    registration = Registration(hook=Hook.PANEL, name="disk", factory=object, plugin="acme")
    with capture_logs() as lines:
        Callbacks(registration, FakeClock(), CallbackCounts()).make(fails)
    assert [one["log_level"] for one in lines] == ["error", "debug"]
    assert lines[1]["exc_info"] is error
