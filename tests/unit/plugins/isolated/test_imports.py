"""Plugins of other projects are imported in child processes only, whatever their imports do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.linux.processes import read_stat
from kubeletx.plugins.candidates import LoadedPlugin
from kubeletx.plugins.foreign import load_agent_plugins
from kubeletx.plugins.installed import installed_plugins
from kubeletx.plugins.isolated.control import Imports, ReportedPlugin
from kubeletx.plugins.isolated.importing import Importer
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until
from tests.unit.plugins.plugin_sites import Site

HEAD = "import asyncio, json, os, signal, sys, threading, time\nfrom kubeletx.api import hookimpl\n"
HOOK = """
@hookimpl
def kubeletx_register_health_checks(register):
    register({name!r}, lambda settings, host: None)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    made.install_plugin("good")
    yield made
    imported = [one for one in sys.modules if one.startswith("site_")]
    made.forget()
    assert not imported


def install(site: Site, text: str, name: str = "bad") -> None:
    site.install(name, {f"site_{name}/plugin.py": HEAD + text, f"site_{name}/__init__.py": ""})


async def load(**settings: Any) -> dict[str, LoadedPlugin]:
    plugins = await load_agent_plugins(PluginSettings(**settings))
    return {one.name: one for one in plugins.loaded}


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
async def test_an_import_that_ends_its_process_is_named_and_the_others_are_loaded(
    site: Site, text: str, words: str
) -> None:
    install(site, text)
    install(site, text, "worse")
    found = await load()
    assert found["good"].state == "ready"
    assert found["containerd"].state == "ready"
    for name in ("bad", "worse"):
        assert found[name].state == "failed"
        assert found[name].reason == (
            f"the import of plugin {name} ({name} 1.0) {words}; repair or uninstall the plugin, or leave it out with "
            f"--disable-plugin={name}"
        )


async def test_an_import_that_ends_its_parent_process_is_named_and_the_others_are_loaded(site: Site) -> None:
    install(site, "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(3600)\n")
    found = await load()
    assert found["good"].state == "ready"
    assert found["bad"].state == "failed"
    assert found["bad"].reason.startswith("the import of the plugin ended its parent process; repair")


async def test_an_import_that_closes_the_descriptors_of_its_process_is_named(site: Site) -> None:
    install(site, "os.closerange(3, 50)\n" + HOOK.format(name="bad"))
    found = await load()
    assert found["bad"].reason.startswith("its import closes descriptors")
    assert found["good"].state == "ready"


async def test_the_other_plugins_of_a_distribution_are_loaded(site: Site) -> None:
    modules = {"site_b.py": "import os\nos._exit(7)\n"}
    for name in ("a", "c"):
        modules[f"site_{name}.py"] = HEAD + HOOK.format(name=name)
    site.install("three", modules, plugins="a = site_a\nb = site_b\nc = site_c\n")
    found = await load()
    assert {name: found[name].state for name in "abc"} == {"a": "ready", "b": "failed", "c": "ready"}


async def test_an_import_that_exits_or_prints_is_a_failed_plugin(site: Site) -> None:
    install(site, "print('hello')\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nsys.exit(3)\n")
    found = await load()
    assert found["bad"].reason.startswith("SystemExit: 3 (at ")
    assert found["good"].state == "ready"


async def test_an_import_that_hangs_is_named_after_its_deadline(site: Site) -> None:
    install(site, "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\ntime.sleep(3600)\n")
    async with asyncio.timeout(60):
        found = await load(stall_seconds=3)
    assert found["bad"].reason.startswith(
        "the import of plugin bad (bad 1.0) did not return within 3 s; repair"
    )
    assert found["good"].state == "ready"


async def import_of(site: Site, text: str, state: str, deadlines: int) -> ReportedPlugin:
    """Import a plugin that runs `text`. Let `deadlines` pass while it is in `state`, then make the file ``go``."""
    clock, pid = FakeClock(), site.path / "pid"
    head = f"PATH = {str(site.path)!r}\nopen(PATH + '/pid', 'w').write(str(os.getpid()))\n"
    install(site, head + text + HOOK.format(name="bad"))
    (bad,) = (one for one in installed_plugins() if one.name == "bad")
    imports = Imports(plugins=(), seconds=10, memory_bytes=1 << 40, sections=None, origin="", sys_path=[])
    importing = asyncio.create_task(Importer(imports, clock).registered([bad]))

    def is_in_state() -> bool:
        found = read_stat(pid.read_text()) if pid.exists() and pid.read_text() else None
        return found is not None and found.state == state and clock.sleepers == 1

    for _ in range(deadlines):
        await until(is_in_state)
        assert not importing.done()
        await clock.run_for(10)
    (site.path / "go").touch()
    async with asyncio.timeout(60):
        (reported,) = await importing
    return reported


async def test_an_import_that_computes_gets_its_deadline_again_at_most_three_times(site: Site) -> None:
    computes = "while not os.path.exists(PATH + '/go'): pass\n"
    assert (await import_of(site, computes, "R", 2)).state == "ready"
    (site.path / "pid").unlink()
    reported = await import_of(site, "while True: pass\n", "R", 3)
    assert reported.reason.startswith("the import of plugin bad (bad 1.0) did not return within 30 s; repair")


async def test_an_import_that_sleeps_at_its_deadline_fails(site: Site) -> None:
    reported = await import_of(site, "signal.pause()\n", "S", 1)
    assert reported.reason.startswith("the import of plugin bad (bad 1.0) did not return within 10 s; repair")


CHANGES = """
import msgspec, structlog
signal.signal(signal.SIGTERM, signal.SIG_IGN)
json.dumps = asyncio.create_task = msgspec.json.encode = None
structlog.configure(processors=[])
os.umask(0o077)
os.chdir('/proc')
os.environ.clear()
"""


async def test_what_an_import_changes_is_not_changed_here(site: Site) -> None:
    install(site, CHANGES + HOOK.format(name="bad"))
    found = await load()
    assert found["bad"].state == "ready"
    assert [one.label for one in found["bad"].registrations] == ["health-check/bad"]


async def test_the_memory_of_an_import_is_limited(site: Site) -> None:
    install(site, "kept = bytearray(300 << 20)\n")
    found = await load(memory_limit_bytes=256 << 20)
    assert found["bad"].reason.startswith("MemoryError")
    assert found["good"].state == "ready"


async def test_a_disabled_plugin_is_not_imported(site: Site) -> None:
    install(site, f"open({str(site.path / 'ran')!r}, 'w')\n")
    assert (await load(disabled=("bad",)))["bad"].state == "disabled"
    assert not (site.path / "ran").exists()


SETTINGS = """
import msgspec

class Settings(msgspec.Struct):
    number: int

class Check:
    def __init__(self, settings, host):
        self.settings = settings
    async def check(self): ...

@hookimpl
def kubeletx_register_health_checks(register):
    register("bad", Check, settings=Settings)
"""


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "write `number: VALUE` in section kubeletx.plugins.bad"),
        ({"number": "x"}, "Expected `int`"),
        ({"numbr": 1}, "unknown field 'numbr'"),
        ({"number": 3}, ""),
    ],
)
async def test_the_child_checks_settings(site: Site, section: dict[str, Any], words: str) -> None:
    install(site, SETTINGS)
    plugins = await load_agent_plugins(PluginSettings(), sections={"bad": section}, origin="config.yaml")
    bad = next(one for one in plugins.loaded if one.name == "bad")
    assert (bad.state, bad.registrations != ()) == (("failed", False) if words else ("ready", True))
    assert words in bad.reason
    if not words:
        assert plugins.decode_settings({"bad": section})["bad"] == section


HERE = """\
import asyncio, os, signal, sys
from structlog.testing import capture_logs
from kubeletx.agent.config.tree import PluginSettings
from kubeletx.plugins.foreign import load_agent_plugins

plugins = asyncio.run(load_agent_plugins(PluginSettings(), sections={"bad": {"number": 3}}))
registration = next(one for one in plugins.registrations if one.name == "bad")
os.environ["HERE"] = "1"
before = os.getcwd(), os.environ.copy(), signal.getsignal(signal.SIGTERM), os.umask(0o22)
pipe = os.pipe()
with capture_logs() as lines:
    check = registration.factory({"number": 3}, None)
assert check.settings.number == 3
assert before == (os.getcwd(), os.environ.copy(), signal.getsignal(signal.SIGTERM), 0o22)
assert os.umask(0) == 0o22
os.write(pipe[1], b"x")
assert os.read(pipe[0], 1) == b"x"
print([(one["plugin"], one["changed"]) for one in lines])
"""


def test_a_plugin_with_isolation_none_changes_nothing_of_the_process(site: Site) -> None:
    changes = CHANGES.replace("json.dumps = asyncio.create_task = msgspec.json.encode = None\n", "")
    changes = changes.replace("structlog.configure(processors=[])\n", "")
    install(site, "if os.environ.get('HERE'): os.closerange(3, 50)\n" + changes + SETTINGS)
    done = subprocess.run(
        [sys.executable, "-c", HERE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "[('plugin bad (bad 1.0)', 'open descriptors, working directory, umask, environment, signal handlers')]"
    )
