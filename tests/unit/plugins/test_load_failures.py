"""Each failed load has a place, and its traceback is in the debug log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.plugins.loading import load_plugins, log_plugins
from tests.unit.plugins.plugin_sites import Site

HEAD = "from kubeletx.api import hookimpl\n\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    yield made
    made.forget()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("import absent_module\n", "at {file}:1"),
        ("from kubeletx.api import Nonsense\n", "at {file}:1"),
        ("exec('1/0')\n", "at {file}:1"),
        (HEAD + "@hookimpl\ndef kubeletx_register_runtimes(regster):\n    pass\n", "at {file}:3"),
        (HEAD + "@hookimpl\nasync def kubeletx_register_runtimes(register):\n    pass\n", "at {file}:3"),
        (HEAD + "def kubeletx_register_runtimes(register):\n    pass\n", "at {file}:3"),
        ("x = '\0'\n", "entry point bad = site_bad.plugin"),
    ],
)
def test_a_failed_load_has_the_file_and_line_of_the_plugin(site: Site, text: str, place: str) -> None:
    site.install("bad", {"site_bad/plugin.py": text, "site_bad/__init__.py": ""})
    (found,) = load_plugins(site.entry_points()).loaded
    assert found.state == "failed"
    assert found.reason.endswith(f"({place.format(file=site.path / 'site_bad/plugin.py')})")


def test_an_entry_point_without_its_module_or_object_is_named(site: Site) -> None:
    site.install("a", {"site_a.py": "x = 1\n"}, plugins="a = site_a:absent")
    site.install("b", {"site_a.py": "x = 1\n"}, plugins="b = site_absent.plugin:hooks")
    one, other = load_plugins(site.entry_points()).loaded
    assert one.reason.endswith(f"(at {site.path / 'site_a.py'})")
    assert other.reason == (
        "ModuleNotFoundError: No module named 'site_absent' (entry point b = site_absent.plugin:hooks)"
    )


def test_the_traceback_is_in_the_debug_log(site: Site) -> None:
    site.install("bad", {"site_bad/plugin.py": "def f():\n    1 / 0\n\nf()\n", "site_bad/__init__.py": ""})
    with capture_logs() as lines:
        log_plugins(load_plugins(site.entry_points()))
    warning, debug = lines
    assert (warning["log_level"], debug["log_level"]) == ("warning", "debug")
    assert debug["plugin"] == "bad"
    assert "line 4, in <module>" in debug["exception"]
    assert "line 2, in f" in debug["exception"]


def test_a_traceback_that_the_plugin_prevents_does_not_matter(site: Site) -> None:
    text = "class E(Exception):\n    def __str__(self):\n        raise SystemExit\n\nraise E\n"
    site.install("bad", {"site_bad/plugin.py": text, "site_bad/__init__.py": ""})
    (found,) = load_plugins(site.entry_points()).loaded
    assert found.reason == f"E (at {site.path / 'site_bad/plugin.py'}:5)"
