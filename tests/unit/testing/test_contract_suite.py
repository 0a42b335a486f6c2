"""The contract suite fails on every bad plugin, with a message and without a traceback."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kubeletx.testing.contract import RuntimeContract
from kubeletx_testing.suite_fake import SuiteFakeRuntime

from .suite_model import run_file

FAULTS = {
    "BlockingStatus": (
        "events_follow or list_and_status_agree",
        "blocked the event loop for 2 s at .*time.sleep",
    ),
    "NoGrace": ("gets_its_grace_period", "has 20 s of grace; its exit code is 137"),
    "FixedSignal": ("stop_signal_of_the_spec", "5 after SIGUSR1 and 6 after SIGTERM; it is 6"),
    "LostArguments": ("arguments_and_working_directory", r"waited 2 s for '/tmp\|zero"),
    "LeftUnits": ("stopping_a_sandbox or stopped_sandbox", "NOT_READY|EXITED|exited"),
    "LeakedCommand": ("timed_out_runs_no_longer", "the end of the process of a command that timed out"),
    "CommandInDeadUnit": ("unit_that_has_ended_is_an_error", "DID NOT RAISE"),
    "MissingMethod": ("has_all_its_methods", "SupportsCriPassthrough is declared, but MissingMethod has no"),
    "DifferentStatus": ("list_and_status_agree", "state"),
    "SilentAfterRestart": (
        "events_of_a_unit_follow",
        "an event of the unit's end, after the runtime was opened",
    ),
    "MeasuresEnded": ("do_not_run_are_not_measured", "the unit was not started, and has figures"),
    "PoliteSandbox": ("gives_its_units_no_grace", "137 if it is killed; it is 0"),
    "HangingStop": (
        "does_not_wait_longer_than_needed",
        r"contract of Runtime.stop_unit:[\s\S]*stop_unit\(.*had not returned when the test gave up",
    ),
    "KibibyteStats": ("memory_is_in_bytes", "a memory figure of at least half"),
    "SignedExitCodes": ("every_exit_code", "137 == 128"),
    "FirstVariables": ("last_of_two_equal_names", "'good day = \\$HOME"),
    "ConstantStats": ("usage_of_a_busy_unit", "larger figures of CPU and time"),
}
"""Bad plugin: which tests of the suite are run, and what the message says."""

SUITE = """
import pytest
from kubeletx_testing.bad_plugins.contract_faults import {name}
from kubeletx.testing.contract import RuntimeContract, base, changes
from kubeletx_testing.suite_fake import suite_backend

base.PATIENCE_SECONDS = changes.PATIENCE_SECONDS = 2.0

class TestBad(RuntimeContract):
    @pytest.fixture
    def make_runtime(self):
        if {name}.__init__ is not {name}.__mro__[1].__init__:
            return {name}
        backend = suite_backend()
        return lambda: {name}(backend)
"""


def run_suite(directory: Path, name: str, chosen: str = "") -> subprocess.CompletedProcess[str]:
    """Run the suite on a bad plugin in a process of its own. `chosen`: expression that chooses tests."""
    return run_file(directory, SUITE.format(name=name), chosen)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_plugin_fails_with_a_message_and_without_a_traceback(name: str, tmp_path: Path) -> None:
    chosen, message = FAULTS[name]
    done = run_suite(tmp_path, name, chosen)
    assert done.returncode == 1, done.stdout
    assert re.search(message, done.stdout), done.stdout
    assert "contract of " in done.stdout
    assert "Traceback" not in done.stdout
    assert len(done.stdout.split("\n")) < 120, done.stdout


def test_a_fixture_that_is_a_plain_value_and_an_attribute_that_is_a_fixture_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Plain\.make_runtime overrides a fixture and is none"):
        type("Plain", (RuntimeContract,), {"make_runtime": SuiteFakeRuntime})
    with pytest.raises(TypeError, match=r"Fixed\.time_factor overrides an attribute and is a fixture"):
        type("Fixed", (RuntimeContract,), {"time_factor": pytest.fixture(lambda self: 2.0)})


def test_after_a_failed_open_the_other_tests_are_not_run(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "NeverOpens")
    assert done.stdout.count("  found:") == 1, done.stdout
    assert re.search(r"\d\d skipped, 1 error in", done.stdout), done.stdout
    assert len(done.stdout.split("\n")) < 40, done.stdout
