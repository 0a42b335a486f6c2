"""The contract suite fails on every bad plugin, with a message and without a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeletx.testing.contract import RuntimeContract
from kubeletx_testing.suite_fake import SuiteFakeRuntime

from .suite_model import failures, run_file, selection

FAULTS = {
    "BlockingStatus": (
        "events_follow or list_and_status_agree",
        "blocked the event loop for 2 s at .*time.sleep",
    ),
    "NoGrace": ("gets_its_grace_period", "has 20 s of grace; its exit code is 137"),
    "FixedSignal": ("stop_signal_of_the_spec", "5 after SIGUSR1 and 6 after SIGTERM; it is 6"),
    "LostArguments": ("arguments_and_working_directory", r"waited 1 s for '/tmp\|zero"),
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

HEAD = """
import pytest
from kubeletx_testing.bad_plugins import contract_faults
from kubeletx.testing.contract import RuntimeContract, base, changes
from kubeletx_testing.suite_fake import suite_backend

base.PATIENCE_SECONDS = changes.PATIENCE_SECONDS = 1.0
"""

SUITE = """
class Test{name}(RuntimeContract):
    @pytest.fixture
    def make_runtime(self):
        bad = contract_faults.{name}
        if bad.__init__ is not bad.__mro__[1].__init__:
            return bad
        backend = suite_backend()
        return lambda: bad(backend)
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of one run of the suite on all bad plugins, of each only the tests that its fault concerns."""
    text = HEAD + "".join(SUITE.format(name=name) for name in FAULTS)
    chosen = selection({f"Test{name}": tests for name, (tests, _) in FAULTS.items()})
    return run_file(tmp_path_factory.mktemp("suite"), text, chosen).stdout


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_plugin_fails_with_a_message_and_without_a_traceback(name: str, output: str) -> None:
    _, message = FAULTS[name]
    texts = failures(output, f"Test{name}")
    text = "\n".join(texts)
    assert re.search(message, text), output
    assert "contract of " in text
    assert "Traceback" not in text
    assert all(len(one.split("\n")) < 100 for one in texts), text


def test_a_fixture_that_is_a_plain_value_and_an_attribute_that_is_a_fixture_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Plain\.make_runtime overrides a fixture and is none"):
        type("Plain", (RuntimeContract,), {"make_runtime": SuiteFakeRuntime})
    with pytest.raises(TypeError, match=r"Fixed\.time_factor overrides an attribute and is a fixture"):
        type("Fixed", (RuntimeContract,), {"time_factor": pytest.fixture(lambda self: 2.0)})


def test_after_a_failed_open_the_other_tests_are_not_run(tmp_path: Path) -> None:
    done = run_file(tmp_path, HEAD + SUITE.format(name="NeverOpens"))
    assert done.stdout.count("  found:") == 1, done.stdout
    assert re.search(r"\d\d skipped, 1 error in", done.stdout), done.stdout
    assert len(done.stdout.split("\n")) < 40, done.stdout
