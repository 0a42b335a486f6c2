"""A plugin that was made for another kubeletx is refused with a sentence that says so."""

from __future__ import annotations

from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

import kubeletx
from kubeletx.plugins.loading import load_plugins
from kubeletx.plugins.versions import is_in_range, required_versions

GOOD = """
from kubeletx.api import hookimpl

@hookimpl
def kubeletx_register_panels(register):
    register("old-news", lambda settings, host: None)
"""


def entry_point(site: Path, code: str, *requires: str) -> EntryPoint:
    """Install a distribution with one module into `site`, and return its entry point."""
    module = f"old_news_{site.name.replace('-', '_')}"
    info = site / f"{module}-0.1.0.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", "Name: kubeletx-old-news", "Version: 0.1.0"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires)]) + "\n")
    (info / "entry_points.txt").write_text(f"[kubeletx]\nold-news = {module}\n")
    (site / f"{module}.py").write_text(code)
    (found,) = distributions(path=[str(site)])
    (point,) = found.entry_points
    return point


def loaded(site: Path, monkeypatch: pytest.MonkeyPatch, code: str, *requires: str) -> tuple[str, str]:
    monkeypatch.syspath_prepend(site)
    (plugin,) = load_plugins([entry_point(site, code, *requires)]).loaded
    return plugin.state, plugin.reason


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (
            "from kubeletx.api import RegisterPanle",
            "kubeletx.api does not have: RegisterPanle (did you mean RegisterPanel?)",
        ),
        (
            "from kubeletx import api\napi.RegisterPanle",
            "kubeletx.api does not have: RegisterPanle (did you mean RegisterPanel?)",
        ),
        ("import kubeletx.api.panles", "kubeletx.api does not have: panles (did you mean panels?)"),
        ("from kubeletx.api import Xyzzy", "kubeletx.api does not have: Xyzzy;"),
    ],
)
def test_a_name_that_does_not_exist_is_named_with_a_similar_one(
    statement: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, reason = loaded(tmp_path, monkeypatch, statement, "kubeletx<9,>=0.1")
    assert state == "failed"
    assert reason.startswith(f"plugin old-news (kubeletx-old-news 0.1.0) needs a name that {name}")
    assert f"it was made for kubeletx >=0.1,<9, and this is kubeletx {kubeletx.__version__}" in reason
    assert "ImportError" not in reason


def test_a_missing_module_of_another_library_is_still_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, reason = loaded(tmp_path, monkeypatch, "import no_such_library")
    assert (state, reason.partition(":")[0]) == ("failed", "ModuleNotFoundError")


@pytest.mark.parametrize(
    "requirement", ["kubeletx>=9", "kubeletx (<0.1)", "kubeletx ~= 0.2.0", "Kubeletx[x]==0.0.*"]
)
def test_a_plugin_for_other_versions_is_not_imported(
    requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, reason = loaded(tmp_path, monkeypatch, "raise SystemExit", requirement)
    assert state == "failed"
    assert reason.startswith("plugin old-news (kubeletx-old-news 0.1.0) is made for kubeletx ")
    assert reason.endswith(
        f"and this is kubeletx {kubeletx.__version__}; install a version of it for {kubeletx.__version__}"
    )


@pytest.mark.parametrize(
    "requirements", [(), ("msgspec",), ("kubeletx",), ("kubeletx>=0.1,<0.2",), ('kubeletx>9; extra == "x"',)]
)
def test_a_plugin_for_this_version_or_without_a_range_is_loaded(
    requirements: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(tmp_path, monkeypatch, GOOD, *requirements) == ("ready", "")


def test_the_required_versions_are_shown_with_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (plugin,) = load_plugins([entry_point(tmp_path, GOOD, "kubeletx<0.2,>=0.1")]).loaded
    assert plugin.made_for == ">=0.1,<0.2"


@pytest.mark.parametrize(
    ("version", "versions", "expected"),
    [
        ("0.1.0", "", True),
        ("0.1.0", ">=0.1,<0.2", True),
        ("0.2.0", ">=0.1,<0.2", False),
        ("0.2.0rc1", "<0.2", False),
        ("0.10.0", ">=0.9,<0.11", True),
        ("0.1.5", "==0.1.*", True),
        ("0.1", "==0.1.0", True),
        ("0.1.1", "!=0.1.1", False),
        ("0.1.9", "~=0.1.2", True),
        ("0.1.1", "~=0.1.2", False),
        ("0.2.0", "~=0.1.2", False),
        ("1.5", "~=1.2", True),
        ("0.1.0", ">0.1", False),
        ("0.1.0", "<=0.1", True),
        ("0.1.0", "@ something else", True),
    ],
)
def test_ranges_mean_what_pip_means(version: str, versions: str, expected: bool) -> None:
    assert is_in_range(version, versions) is expected


def test_the_first_unconditional_requirement_counts() -> None:
    assert (
        required_versions(["msgspec>=1", 'kubeletx>=2; extra == "x"', "kubeletx < 0.2, >= 0.1"])
        == ">=0.1,<0.2"
    )
    assert required_versions(None) == ""
