"""A scan survives plugins whose import ends its process or hangs, and names them with what to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kubeletx.cli.plugin_scan.request import ScanRequest
from kubeletx.cli.plugin_scan.scan import scan_plugins
from kubeletx.server.views import PluginView
from tests.unit.agent.plugin_sites import Site

HEAD = "import os, signal, sys, threading, time\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Distributions that only the process of the scan imports."""
    made = Site(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(made.path))
    made.install_plugin("good")
    return made


def install(site: Site, text: str, name: str = "bad") -> None:
    site.install(name, {f"site_{name}/plugin.py": HEAD + text, f"site_{name}/__init__.py": ""})


def scan(site: Site, seconds: float = 30.0, **more: object) -> dict[str, PluginView]:
    request = ScanRequest(root_dir=str(site.path), **more)  # type: ignore[arg-type]
    return {one.name: one for one in scan_plugins(request, import_seconds=seconds)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("os._exit(7)\n", "ended its process with exit code 7"),
        ("os._exit(0)\n", "ended its process with exit code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)\n", "ended its process with SIGKILL"),
        ("os.abort()\n", "ended its process with SIGABRT"),
        ("if os.fork(): os._exit(7)\nelse: time.sleep(3600)\n", "ended its process with exit code 7"),
    ],
)
def test_an_import_that_ends_its_process_is_named_and_the_others_are_loaded(
    site: Site, text: str, words: str
) -> None:
    install(site, text)
    install(site, text, "worse")
    found = scan(site)
    assert found["good"].state == "ready"
    assert found["containerd"].state == "ready"
    for name in ("bad", "worse"):
        assert found[name].state == "failed"
        assert found[name].reason == (
            f"the import of plugin {name} ({name} 1.0) {words}; repair or uninstall the plugin, or leave it out with "
            f"--disable-plugin={name}"
        )
    assert not (site.path / "plugin-calls").exists(), "no file of the agent is written"


def test_an_import_that_exits_or_prints_is_no_trouble(site: Site) -> None:
    install(site, "print('hello')\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nsys.exit(3)\n")
    found = scan(site)
    assert found["bad"].reason.startswith("SystemExit: 3 (at ")
    assert found["good"].state == "ready"


def test_an_import_that_hangs_is_named_after_its_deadline(site: Site) -> None:
    install(site, "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\ntime.sleep(3600)\n")
    began = time.monotonic()
    found = scan(site, seconds=5)
    assert found["bad"].reason.startswith(
        "the import of plugin bad (bad 1.0) did not return within 5 s; repair"
    )
    assert found["good"].state == "ready"
    assert time.monotonic() - began < 60


def test_the_configuration_of_the_agent_holds_for_the_scan(site: Site) -> None:
    install(site, "os._exit(7)\n")
    found = scan(site, disabled=("bad",), isolation={"good": "none"})
    assert found["bad"].state == "disabled"
    assert found["good"].isolation == "none"


def test_a_plugin_that_ended_the_agent_is_not_imported(site: Site) -> None:
    install(site, "os._exit(7)\n")
    marker = site.path / "plugin-calls" / "import.bad"
    marker.parent.mkdir()
    marker.write_text('{"plugin": "plugin bad (bad 1.0)"}')
    assert scan(site)["bad"].reason.endswith(f"rm '{marker}' && kubeletx runtime reload")
    assert marker.exists()
