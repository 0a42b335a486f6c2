"""Plugins with real faults at import and registration: each is named with its remedy, and no other plugin is affected."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.api import InvalidConfig
from kubeletx.plugins.loading import Plugins, load_plugins
from kubeletx.runtimes.plugins.call_markers import CallMarkers, own_interrupts
from tests.unit.plugins.plugin_sites import Site

HEAD = "from kubeletx.api import hookimpl\nfrom kubeletx.testing import FakeRuntime\n\n"
HOOK = "@hookimpl\ndef kubeletx_register_runtimes(register):\n    "
GOOD = "register('bad', FakeRuntime, workload_types=('container',), schemes=('bad',))\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    made.install_plugin("good")
    yield made
    made.close()
    made.forget()


def install(site: Site, text: str, name: str = "bad", **more: str) -> None:
    """Install a distribution whose plugin module has this text."""
    module = name.replace("-", "_")
    site.install(name, {f"site_{module}/plugin.py": text, f"site_{module}/__init__.py": ""}, **more)


def reason(found: Plugins, name: str = "bad") -> str:
    return next(one.reason for one in found.loaded if one.name == name)


def states(found: Plugins) -> dict[str, str]:
    return {one.name: one.state for one in found.loaded}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\nsys.exit(2)\n", "SystemExit: 2 (at {file}:2)"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt (at {file}:1)"),
        ("raise GeneratorExit\n", "GeneratorExit (at {file}:1)"),
        ("def broken(:\n", "SyntaxError"),
        (HEAD + HOOK + "raise SystemExit('no')\n", "SystemExit: no (at {file}:6)"),
    ],
)
def test_an_import_or_hook_that_raises_anything_is_named_with_its_line(
    site: Site, text: str, words: str
) -> None:
    install(site, text)
    found = load_plugins(site.entry_points())
    assert states(found) == {"bad": "failed", "good": "ready"}
    assert words.format(file=site.path / "site_bad/plugin.py") in reason(found)
    (failed,) = found.kinds.failed
    assert str(failed.plugin) == "plugin bad (bad 1.0)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            GOOD.replace("('container',)", "'container'"),
            "runtime kind 'bad' workload_types: 'container' is a string; write the tuple ('container',)",
        ),
        (GOOD.replace("('bad',)", "'bad'"), "schemes: 'bad' is a string; write the tuple ('bad',)"),
        (GOOD.replace("('bad',)", "(7,)"), "schemes: it contains 7; write strings that are not empty"),
        (GOOD.replace("('bad',)", "()"), "schemes: it is empty; name at least one"),
        (GOOD.replace("('bad',)", "None"), "schemes: None is not a tuple of strings"),
        (GOOD.replace("'bad', F", "7, F"), "runtime kind name: 7 is not a name"),
        (GOOD.replace("FakeRuntime", "'FakeRuntime'"), "factory: 'FakeRuntime' cannot be called"),
        (
            GOOD.replace("))", "), scheme=1)"),
            "unexpected keyword argument 'scheme'; did you mean schemes?; known arguments: workload_types",
        ),
        (GOOD.replace("))", "), settings=dict)"), "settings: class dict is not a msgspec Struct class"),
        (GOOD.replace("))", "), default_claim=1)"), "default_claim: 1 is not True or False"),
        ("register('bad', FakeRuntime, schemes=('bad',))\n", "register() missing 1 required keyword-only"),
        (
            "register('bad', dict, workload_types=('container',), schemes=('bad',))\n",
            "class dict lacks open, close, traits, capability,",
        ),
    ],
)
def test_a_wrong_argument_of_register_is_named_with_plugin_distribution_and_version(
    site: Site, call: str, words: str
) -> None:
    install(site, HEAD + HOOK + call)
    found = load_plugins(site.entry_points())
    assert states(found) == {"bad": "failed", "good": "ready"}
    assert words in reason(found)
    if "register()" not in words:
        assert "plugin bad (bad 1.0)" in reason(found)
    assert f"{site.path}/site_bad/plugin.py:6" in reason(found)


@pytest.mark.parametrize(
    ("hook", "call", "words"),
    [
        (
            "health_checks",
            "register('x', print, period_seconds='60')",
            "period_seconds: '60' is not a number",
        ),
        ("health_checks", "register('x', dict)", "class dict lacks check of HealthCheck; add it"),
        ("pod_sources", "register('x', dict)", "class dict lacks run of PodSource"),
        (
            "admission_checks",
            "register('x', print, fails_open='no')",
            "fails_open: 'no' is not True or False",
        ),
        ("panels", "register('x', print, title=3)", "title: 3 is not a string"),
        ("panels", "register(3, print)", "panel name: 3 is not a name"),
        ("panels", "register('x', print, settings={})", "settings: an object of type dict is not a msgspec"),
        ("panels", "register('x', print, tittle='X')", "did you mean title?"),
    ],
)
def test_a_wrong_argument_of_another_hook_is_named(site: Site, hook: str, call: str, words: str) -> None:
    install(site, HEAD + f"@hookimpl\ndef kubeletx_register_{hook}(register):\n    {call}\n")
    found = load_plugins(site.entry_points())
    assert states(found) == {"bad": "failed", "good": "ready"}
    assert words in reason(found)
    assert "plugin bad (bad 1.0)" in reason(found)


def test_a_declared_capability_without_its_method_is_named(site: Site) -> None:
    text = HEAD + "from kubeletx.api import SupportsExec, SupportsStats\n"
    text += "class Half(FakeRuntime):\n    capabilities = (SupportsExec, SupportsStats)\n    list_unit_stats = None\n"
    install(site, text + HOOK + GOOD.replace("FakeRuntime", "Half"))
    found = load_plugins(site.entry_points())
    assert "class Half lacks list_unit_stats of SupportsStats; add it, or remove SupportsStats" in reason(
        found
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            HEAD + HOOK.replace("@hookimpl\n", "") + GOOD,
            "the function has no @hookimpl, so it is never called",
        ),
        (
            HEAD + HOOK.replace("runtimes", "runtime") + GOOD,
            "kubeletx_register_runtime: it is not a hook; did you mean kubeletx_register_runtimes?",
        ),
        (
            HEAD + HOOK.replace("@hookimpl\n", "").replace("runtimes", "runtime") + GOOD,
            "did you mean kubeletx_register_runtimes?",
        ),
        (
            HEAD + HOOK.replace("kubeletx_register_runtimes", "register_runtimes") + GOOD,
            "register_runtimes: it is not a hook; did you mean kubeletx_register_runtimes?",
        ),
    ],
)
def test_a_hook_that_is_not_marked_or_misspelt_is_named(site: Site, text: str, words: str) -> None:
    install(site, text)
    found = load_plugins(site.entry_points())
    assert states(found) == {"bad": "failed", "good": "ready"}
    assert words in reason(found)


def test_a_plugin_of_kubeletx_keeps_its_kind_and_the_other_claimant_fails(site: Site) -> None:
    install(site, HEAD + HOOK + GOOD, "kubeletx-containerd")
    install(site, HEAD + HOOK + GOOD, "bad", version="0.3")
    found = load_plugins(site.entry_points())
    assert states(found) == {"bad": "failed", "good": "ready", "kubeletx-containerd": "ready"}
    assert "plugin bad (bad 0.3): runtime kind 'bad'" in reason(found)
    assert "plugin kubeletx-containerd (kubeletx-containerd 1.0), which belongs to kubeletx" in reason(found)


def test_a_plugin_is_disabled_by_its_name_or_its_distribution_and_is_not_imported(site: Site) -> None:
    install(site, "raise SystemExit\n", plugins="bad = site_bad.plugin\nworse = site_bad.plugin")
    for disabled in (["bad", "worse"], ["Bad"]):
        found = load_plugins(site.entry_points(), disabled=disabled)
        assert states(found) == {"bad": "disabled", "good": "ready", "worse": "disabled"}
        assert "--disable-plugin" in reason(found)
        assert len(found.kinds.failed) == 2
    assert load_plugins(site.entry_points(), disabled=["absent", "bad"]).not_installed == ("absent",)


KILLER = "import os, sys\nif os.path.exists({path!r}):\n    {end}\n"


@pytest.mark.parametrize("end", ["os._exit(7)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_an_import_that_ends_the_process_ends_it_once(site: Site, tmp_path: Path, end: str) -> None:
    root = tmp_path / "root"
    kills = tmp_path / "kills"
    kills.touch()
    install(site, KILLER.format(path=str(kills), end=end) + HEAD + HOOK + GOOD)
    start = [sys.executable, "-c", START, str(site.path), str(root)]
    first = subprocess.run(start, capture_output=True, text=True, timeout=60, check=False)
    assert first.returncode != 0
    second = subprocess.run(start, capture_output=True, text=True, timeout=60, check=True)
    marker = root / "plugin-calls" / "import.bad"
    assert "bad failed" in second.stdout
    assert "good ready" in second.stdout
    assert f"rm '{marker}'" in second.stdout
    assert "plugin bad (bad 1.0)" in second.stdout
    marker.unlink()
    kills.unlink()
    third = subprocess.run(start, capture_output=True, text=True, timeout=60, check=True)
    assert "bad ready" in third.stdout
    assert not marker.exists()


START = """\
import sys
from importlib.metadata import distributions
from pathlib import Path
from kubeletx.plugins.loading import load_plugins
from kubeletx.runtimes.plugins.call_markers import CallMarkers

sys.path.insert(0, sys.argv[1])
points = [point for one in distributions(path=[sys.argv[1]]) for point in one.entry_points]
for one in load_plugins(points, markers=CallMarkers(Path(sys.argv[2]))).loaded:
    print(one.name, one.state, one.reason)
"""


def test_another_version_of_a_plugin_that_ended_the_process_is_imported(site: Site, tmp_path: Path) -> None:
    markers = CallMarkers(tmp_path)
    install(site, HEAD + HOOK + GOOD)
    path = tmp_path / "plugin-calls" / "import.bad"
    path.parent.mkdir()
    path.write_text('{"plugin": "plugin bad (bad 0.9)"}')
    assert states(load_plugins(site.entry_points(), markers=markers))["bad"] == "ready"
    assert not path.exists()
    path.write_text("not JSON")
    assert states(load_plugins(site.entry_points(), markers=markers))["bad"] == "failed"
    assert path.exists()


def test_a_root_directory_that_cannot_be_written_does_not_prevent_the_import(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    found = load_plugins(site.entry_points(), markers=CallMarkers(tmp_path / "file"))
    assert states(found) == {"good": "ready"}


@pytest.mark.usefixtures("interruptible")
def test_only_a_signal_interrupts_the_import_of_plugins() -> None:
    def swallows(call: Callable[[], object]) -> None:
        """Call plugin code that catches its KeyboardInterrupt."""
        with own_interrupts(), contextlib.suppress(KeyboardInterrupt):
            call()

    def raises() -> None:
        raise KeyboardInterrupt

    swallows(raises)
    with pytest.raises(KeyboardInterrupt):
        swallows(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SETTINGS = (
    HEAD
    + """
import msgspec

class Inner(msgspec.Struct):
    port: int

class Settings(msgspec.Struct, kw_only=True):
    url: str
    size: int = 3
    inner: Inner | None = None
    def __post_init__(self):
        if self.size == 13:
            raise SystemExit("unlucky")

"""
)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            None,
            "kubeletx.plugins.bad: Object missing required field `url`; write `url: VALUE` in section "
            "kubeletx.plugins.bad of the configuration file; then restart the agent",
        ),
        (
            {"url": "x", "inner": {}},
            "write `port: VALUE` in section kubeletx.plugins.bad.inner of the configuration file",
        ),
        (
            {"url": "x", "size": "many"},
            "/etc/k.yaml: kubeletx.plugins.bad: Expected `int`, got `str` - at `$.size`",
        ),
        ({"url": "x", "sise": 1}, "unknown field 'sise'; known: inner, size, url"),
        ({"url": "x", "size": 13}, "SystemExit: unlucky (at {file}:"),
        (["url"], "Expected `object`, got `array`"),
    ],
)
@pytest.mark.parametrize("hook", ["runtimes", "health_checks"])
def test_wrong_settings_of_a_plugin_of_others_fail_it_alone(
    site: Site, hook: str, section: object, words: str
) -> None:
    call = GOOD if hook == "runtimes" else "register('bad', print)\n"
    install(site, SETTINGS + HOOK.replace("runtimes", hook) + call.replace(")\n", ", settings=Settings)\n"))
    sections = {} if section is None else {"bad": section}
    found = load_plugins(site.entry_points(), sections=sections, origin="/etc/k.yaml")
    assert states(found) == {"bad": "failed", "good": "ready"}
    assert words.format(file=site.path / "site_bad/plugin.py") in reason(found)
    assert "bad" not in found.decode_settings(sections), "the start goes on"
    good = load_plugins(site.entry_points(), sections={"bad": {"url": "x"}})
    assert states(good) == {"bad": "ready", "good": "ready"}


def test_wrong_settings_of_a_plugin_of_kubeletx_and_unknown_sections_refuse_the_start(site: Site) -> None:
    text = SETTINGS + HOOK + GOOD.replace(")\n", ", settings=Settings)\n")
    install(site, text, "kubeletx-containerd")
    found = load_plugins(site.entry_points(), sections={})
    assert states(found) == {"good": "ready", "kubeletx-containerd": "ready"}
    with pytest.raises(InvalidConfig, match="missing required field `url`"):
        found.decode_settings({})
    with pytest.raises(InvalidConfig, match="no plugin registers 'typo'"):
        found.decode_settings({"bad": {"url": "x"}, "typo": {}})
