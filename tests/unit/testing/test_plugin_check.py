"""``kubeletx plugin check`` on small distributions that are installed as pip would, each with one fault."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kubeletx.cli.commands.plugin.scaffold import KINDS, new_plugin
from kubeletx.testing.check import found
from kubeletx.testing.check.results import TestResult

CONTRACT = "tests/test_contract.py"


@pytest.fixture(scope="module")
def types_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache of mypy that the tests of this file share."""
    return tmp_path_factory.mktemp("mypy")


def install(tree: Path, kind: str = "panel", changed: Mapping[str, str] | None = None) -> Path:
    """Write the source tree of plugin ``tea`` and its metadata, and return the tree.

    `changed`: other texts of some files; an empty text leaves the file out.
    """
    for path, text in {**new_plugin("tea", kind, "0.1.0"), **(changed or {})}.items():
        if text or path.endswith(("py.typed", "__init__.py")):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
    metadata = tree / "src" / "kubeletx_tea-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kubeletx-tea\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[kubeletx]\ntea = kubeletx_tea.plugin\n")
    return tree


def check(tree: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process whose environment has the distribution."""
    search = {"PYTHONPATH": str(tree / "src"), "MYPY_CACHE_DIR": str(cache)}
    return subprocess.run(
        [str(Path(sys.executable).with_name("kubeletx")), "plugin", "check", *(arguments or (str(tree),))],
        env={**os.environ, **search, "PYTEST_ADDOPTS": "--no-such-option"},
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )


def last_list(output: str) -> str:
    """Return the list of marks at the end."""
    return output.rpartition("\nResult\n")[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_without_options(kind: str, tmp_path: Path, types_cache: Path) -> None:
    done = check(install(tmp_path, kind), types_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    marks = last_list(done.stdout)
    assert "✓ plugin tea: ready" in marks
    assert "✓ types" in marks
    assert f"✓ contract of {kind}/tea: " in marks
    assert "✗" not in done.stdout
    if kind == "runtime":
        assert "✓ SupportsExec: exec_sync, exec" in done.stdout
        assert "SupportsMachine is not declared" in marks
    if kind == "volume-driver":
        assert "volumes: flexVolume:example.com/tea, csi:tea.example.com; settings: Settings" in done.stdout


FAULTS = {
    "an import that fails": (
        {"src/kubeletx_tea/plugin.py": "raise ValueError('no leaves')\n"},
        "✗ plugin tea: failed: ValueError: no leaves",
    ),
    "an import that ends the process": (
        {"src/kubeletx_tea/plugin.py": "import os\nos._exit(7)\n"},
        "its import ended the process with exit code 7",
    ),
    "no hook": (
        {"src/kubeletx_tea/plugin.py": "\n"},
        "✗ plugin tea: skipped",
    ),
    "a type error": (
        {"src/kubeletx_tea/__init__.py": "NUMBER: int = 'one'\n"},
        "✗ types: src/kubeletx_tea/__init__.py:1",
    ),
    "no contract test": ({CONTRACT: ""}, "is a PanelContract; add one"),
    "a test file that fails": ({CONTRACT: "import no_such_leaves\n"}, "No module named 'no_such_leaves'"),
}
"""Fault: the changed files, and what the list at the end says."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_in_the_list_at_the_end(fault: str, tmp_path: Path, types_cache: Path) -> None:
    changed, message = FAULTS[fault]
    done = check(install(tmp_path, changed=changed), types_cache)
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in last_list(done.stdout), done.stdout
    assert "Traceback" not in done.stdout + done.stderr


PANEL_TEST = """
import pytest
from kubeletx_testing.bad_plugins import hook_faults
from kubeletx.testing.contract import PanelContract, calls

calls.CANCEL_SECONDS = 0.1

class TestTea(PanelContract):
    time_factor = 0.01

    @pytest.fixture
    def make_panel(self):
        return {make}
"""

BAD_PANELS = {
    "HangingPanel": "it shows values of the declared types: show() did not return within 0.1 s",
    "RaisingPanel": "it shows values of the declared types: RuntimeError: the backend speaks another protocol",
    "NonsensePanel": "it shows values of the declared types: show returned 'load 1.0'; it must return Table or Text or Png",
    "UnmakeablePanel": "a Panel can be made; its factory does no I/O: RuntimeError: the backend speaks another protocol",
}


@pytest.mark.parametrize("name", BAD_PANELS)
def test_a_bad_plugin_fails_with_one_sentence(name: str, tmp_path: Path, types_cache: Path) -> None:
    changed = {CONTRACT: PANEL_TEST.format(make=f"hook_faults.{name}")}
    done = check(install(tmp_path, changed=changed), types_cache)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"✗ {BAD_PANELS[name]}" in last_list(done.stdout), done.stdout
    assert "Traceback" not in done.stdout
    if name == "UnmakeablePanel":
        assert "– 4 tests: not run" in last_list(done.stdout)  # noqa: RUF001


def test_a_plugin_that_ends_the_test_process_fails(tmp_path: Path, types_cache: Path) -> None:
    changed = {CONTRACT: PANEL_TEST.format(make="lambda: __import__('os')._exit(9)")}
    done = check(install(tmp_path, changed=changed), types_cache)
    assert done.returncode == 1, done.stdout + done.stderr
    message = "✗ it shows values of the declared types: the test process ended with exit code 9 in this test"
    assert message in last_list(done.stdout), done.stdout


def test_an_import_that_hangs_is_ended_and_its_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, changed={"src/kubeletx_tea/plugin.py": "import time\n\ntime.sleep(1000)\n"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    plugins, reason = found.find("kubeletx-tea", 5.0)
    assert plugins == ()
    assert reason == f"its import did not end within 5 s; it hangs at {tmp_path}/src/kubeletx_tea/plugin.py:3"


NEVER = """
from kubeletx.api import hookimpl
from kubeletx_testing.bad_plugins.contract_faults import MissingMethod, NeverOpens

@hookimpl
def kubeletx_register_runtimes(register):
    register("tea", lambda *_: NeverOpens(), workload_types=("container",), schemes=("tea",))
    register("pot", lambda *_: MissingMethod(), workload_types=("container",), schemes=("pot",))
"""


def test_a_runtime_without_tests_is_tested_at_an_endpoint(tmp_path: Path, types_cache: Path) -> None:
    files = {
        "src/kubeletx_tea/plugin.py": NEVER,
        CONTRACT: "",
        "pyproject.toml": "[project]\nname='kubeletx-tea'\n",
    }
    tree = install(tmp_path, changed=files)
    done = check(tree, types_cache, "kubeletx-tea", "--endpoint", "tea:///")
    assert done.returncode == 1, done.stdout + done.stderr
    marks = last_list(done.stdout)
    assert "✗ the runtime opens: Unavailable: no answer from bad://" in marks, done.stdout
    assert "tests: not run" in marks
    assert "✗ capabilities of runtime/pot: methods of SupportsCriPassthrough are missing" in marks


def test_wrong_settings_of_an_endpoint_are_one_failure(tmp_path: Path, types_cache: Path) -> None:
    tree = install(tmp_path, "runtime", {CONTRACT: ""})
    arguments = ("kubeletx-tea", "--endpoint", "tea:///", "--settings", "{cups: 1}")
    done = check(tree, types_cache, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    message = "InvalidConfig: --settings: kubeletx.plugins.tea: 'tea' has no settings"
    assert last_list(done.stdout).count(message) == 1, done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-distribution",), "it is not installed in the environment"),
        (("pytest",), "it is no plugin"),
        (("kubeletx-tea",), "it has no tests that make panel/tea"),
        (("kubeletx-tea", "--endpoint", "pot:///"), "no runtime of kubeletx-tea serves 'pot:///'"),
        (("kubeletx-tea", "--settings", "{}"), None),
        (("kubeletx-tea", "--settings", "{a: 1}"), "there is no endpoint"),
        (("kubeletx-tea", "--settings", "/no/file"), "it cannot be read"),
    ],
)
def test_wrong_use_has_exit_code_2(
    arguments: tuple[str, ...], message: str | None, tmp_path: Path, types_cache: Path
) -> None:
    done = check(install(tmp_path), types_cache, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert (message or "it has no tests") in done.stderr


def test_the_sentence_of_a_result_is_what_was_found() -> None:
    text = "it shows\n  found:\n    show returned\n    nothing\n  contract of Panel.show:\n    Return it."
    assert TestResult("it shows", "panel", "failed", text).sentence == "show returned nothing"
