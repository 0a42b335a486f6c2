"""pytest plugin of the check: runs only contract suites, and writes one JSON line for each test to a file."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ..contract import (
    AdmissionCheckContract,
    HealthCheckContract,
    PanelContract,
    PodSourceContract,
    RemedyContract,
    RuntimeContract,
    VolumeDriverContract,
)
from ..contract.failures import sentence_of
from .results import NOT_RUN, RESULTS_FILE, STARTED, WITHOUT, TestResult

SUITES = {
    "runtime": RuntimeContract,
    "health-check": HealthCheckContract,
    "pod-source": PodSourceContract,
    "admission-check": AdmissionCheckContract,
    "panel": PanelContract,
    "volume-driver": VolumeDriverContract,
    "remedy": RemedyContract,
}
MOST_FAILURES = 10
"""Number of failed tests of a class after which its other tests are not run."""

_hooks: dict[str, str] = {}
_results: dict[str, TestResult] = {}
_failed: Counter[str] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of classes that are contract suites."""
    for item in items:
        cls = getattr(item, "cls", None)
        hook = next((name for name, suite in SUITES.items() if cls and issubclass(cls, suite)), "")
        if hook and hook != os.environ.get(WITHOUT):
            _hooks[item.nodeid] = hook
    others = [item for item in items if item.nodeid not in _hooks]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item.nodeid in _hooks]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Report a test file that cannot be imported."""
    if report.failed:
        lines = report.longreprtext.splitlines()
        errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
        text = "\n".join(errors) or report.longreprtext.strip()[-2000:]
        _write(TestResult(f"import of {report.nodeid or 'the tests'}", "", "failed", text))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if too many of its class have failed."""
    if _failed[_class_of(item.nodeid)] >= MOST_FAILURES:
        pytest.skip(f"{NOT_RUN}: {MOST_FAILURES} tests have failed")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Report that a test starts, in case it ends the process."""
    _write(TestResult(sentence_of(nodeid.rpartition("::")[2]), _hooks.get(nodeid, ""), STARTED))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the phases of a test; write its result after the last one."""
    node, hook = report.nodeid, _hooks.get(report.nodeid, "")
    title = sentence_of(node.rpartition("::")[2])
    if report.failed and getattr(_results.get(node), "outcome", "") != "failed":
        _results[node] = TestResult(title, hook, "failed", _text(report))
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        _results[node] = TestResult(title, hook, "skipped", reason.removeprefix("Skipped: "))
    if report.when == "teardown":
        result = _results.pop(node, None) or TestResult(title, hook, "passed")
        _failed[_class_of(node)] += result.outcome == "failed"
        _write(result)


def _class_of(node: str) -> str:
    return node.rpartition("::")[0]


def _text(report: pytest.TestReport) -> str:
    """Return the explanation of the suite; of other errors the place and the message, without a traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.longreprtext.strip()
    if "\n  found:\n" in crash.message:
        return str(crash.message).removeprefix("Failed: ").strip()
    place = f"{crash.path}:{crash.lineno}" if crash.path else "the test"
    return f"{place}: {crash.message.strip()[:2000]}"


def _write(result: TestResult) -> None:
    with Path(os.environ[RESULTS_FILE]).open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")
