"""The contract suites of all hooks but runtimes, and that of records, fail on bad plugins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .suite_model import failures, run_file, selection

SUITES = {
    "HealthCheck": ("HealthCheckContract", ("make_check", "make_failing"), "check"),
    "AdmissionCheck": ("AdmissionCheckContract", ("make_check",), "review"),
    "Panel": ("PanelContract", ("make_panel",), "show"),
    "PodSource": ("PodSourceContract", ("make_source",), "run"),
    "Records": ("RecordsContract", ("open_records",), "get"),
    "VolumeDriver": ("VolumeDriverContract", ("make_driver",), "prepare"),
}
"""Protocol: its suite, the fixtures that make objects, and the method with the fault."""

FAULTS = ("Hanging", "Raising", "Nonsense")

NONSENSE = {
    "HealthCheck": "check returned 'yes'; it must return CheckResult",
    "AdmissionCheck": "review returned True; it must return Allow or Refuse",
    "Panel": "show returned 'load 1.0'; it must return Table or Text or Png",
    "PodSource": "run returned; it runs until it is cancelled",
    "Records": "None",
    "VolumeDriver": "prepare returned 'ready'; it must return ReadyVolume",
}

CHOSEN = {
    "Records": "a_name_is_taken_once or what_does_not_exist",
    "VolumeDriver": "read_and_written or at_the_same_time",
}
"""Tests to run, where all would take long; a protocol without an entry: all."""

FIXTURE = """
    @pytest.fixture
    def {fixture}(self, tmp_path):
        return {made}
"""

HEAD = """
import pytest
from kubeletx_testing.bad_plugins.hook_faults import *
from kubeletx.testing.contract import *
from kubeletx.testing.contract import calls, pod_sources

calls.CANCEL_SECONDS = pod_sources.PATIENCE_SECONDS = 0.2
"""

SUITE = """
class Test{name}({suite}):
    time_factor = 0.01
    races = 4

    @pytest.fixture
    def refused_pod(self):
        return {{"metadata": {{"name": "refused"}}, "spec": {{}}}}

    @pytest.fixture
    def add(self):
        return lambda name: None

    @pytest.fixture
    def remove(self):
        return lambda name: None
"""


def suite_of(protocol: str, name: str) -> str:
    """Return the tests of a bad plugin of `protocol`. `name`: its class."""
    suite, fixtures, _ = SUITES[protocol]
    made = f"lambda: {name}(tmp_path / 'state')" if protocol == "VolumeDriver" else name
    text = "".join(FIXTURE.format(fixture=fixture, made=made) for fixture in fixtures)
    return SUITE.format(name=name, suite=suite) + text


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of one run of all suites on all bad plugins."""
    bad = {f"{fault}{protocol}": protocol for protocol in SUITES for fault in FAULTS}
    text = HEAD + "".join(suite_of(protocol, name) for name, protocol in bad.items())
    chosen = selection({f"Test{name}": CHOSEN.get(protocol, "") for name, protocol in bad.items()})
    return run_file(tmp_path_factory.mktemp("suites"), text, chosen).stdout


@pytest.mark.parametrize("protocol", SUITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_plugin_fails_with_the_contract_and_without_a_traceback(
    protocol: str, fault: str, output: str
) -> None:
    method = SUITES[protocol][2]
    texts = failures(output, f"Test{fault}{protocol}")
    text = "\n".join(texts)
    assert f"contract of {protocol}.{method}" in text, output
    message = {
        "Hanging": f"{method}.* (did not return within|went on for)",
        "Raising": "RuntimeError: the backend speaks another protocol",
        "Nonsense": re.escape(NONSENSE[protocol]),
    }[fault]
    assert re.search(message, text), text
    assert "Traceback" not in text
    assert all(len(one.split("\n")) < 100 for one in texts), text


def test_a_panel_that_blocks_the_event_loop_is_interrupted_and_its_line_is_named(tmp_path: Path) -> None:
    done = run_file(tmp_path, HEAD + suite_of("Panel", "BlockingPanel"), "declared_types")
    assert re.search("blocked the event loop for 2 s at .*time.sleep", done.stdout), done.stdout


def test_after_an_object_that_cannot_be_made_the_other_tests_are_not_run(tmp_path: Path) -> None:
    done = run_file(tmp_path, HEAD + suite_of("Panel", "UnmakeablePanel"))
    assert done.stdout.count("found:") == 1, done.stdout
    assert "1 failed, 4 skipped" in done.stdout
    assert "a Panel can be made; its factory does no I/O" in done.stdout
