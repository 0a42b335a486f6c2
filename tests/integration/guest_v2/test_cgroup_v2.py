"""Runs tests of standby in an emulated guest whose kernel has only cgroup v2; each must pass there, and none be skipped.

The guest runs tests of this repository as they are, and those of `inside.py`. A whole agent is among them. All tests of
`tests/integration/pods/test_standby.py` would take some 15 minutes: CONTRIBUTING.md has the command.
"""

from __future__ import annotations

import compileall
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kubeletx_testing.lab import load_images
from kubeletx_testing.lab.cgroup_v2_guest import RESULTS, GuestRun, run_with_cgroup_v2

REPOSITORY = Path(__file__).parents[3]
TIMEOUT_SECONDS = 900
FREEZER = "tests/integration/runtimes/test_quark_freezer.py"
STRATEGIES = "tests/integration/runtimes/test_quark_strategies.py"
INSIDE = "tests/integration/guest_v2/inside.py"
TESTS = (
    f"{INSIDE}::test_an_agent_makes_qos_cgroups_hibernates_a_pod_and_sees_its_processes_killed",
    f"{FREEZER}::test_all_below_is_frozen_and_thawed_each_twice[v2]",
    f"{FREEZER}::test_a_cgroup_that_is_gone_is_not_found[v2]",
    f"{FREEZER}::test_a_cgroup_below_a_frozen_one_stays_frozen_and_the_error_says_so[v2]",
    f"{FREEZER}::test_a_thread_in_uninterruptible_sleep_is_named_and_the_processes_run_again[v2]",
    f"{FREEZER}::test_a_container_is_found_by_its_process_and_by_a_search[v2]",
    "tests/integration/pods/test_pod_cgroups.py"
    "::test_a_pod_s_cgroup_has_its_limits_takes_processes_and_is_removed_with_them",
    f"{INSIDE}::test_this_kernel_has_only_cgroup_v2",
    f"{INSIDE}::test_a_signal_that_nothing_handles_ends_a_process_while_its_cgroup_is_frozen[SIGKILL]",
    f"{INSIDE}::test_a_signal_that_nothing_handles_ends_a_process_while_its_cgroup_is_frozen[SIGTERM]",
    f"{INSIDE}::test_without_swap_a_reclaim_gives_back_pages_of_files_only",
    f"{INSIDE}::test_with_swap_a_reclaim_gives_back_all_and_the_process_finds_it_again",
    f"{INSIDE}::test_a_cgroup_without_a_share_of_swap_gets_one_only_while_it_is_reclaimed",
    f"{STRATEGIES}::test_a_new_runtime_object_finds_it_frozen_and_thaws_it[freezer]",
    f"{STRATEGIES}::test_a_frozen_container_uses_no_cpu_time[pause]",
)
"""Ids of the tests in the guest. The agent comes first: it finds a node on which no program has made cgroups yet."""

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS + 60)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> tuple[GuestRun, dict[str, str]]:
    """The run of all tests in one guest, and the outcome of each."""
    load_images()
    for name in ("kubeletx", "plugins", "testing", "tests"):  # the guest would need seconds for it
        compileall.compile_dir(REPOSITORY / name, quiet=2)
    results = tmp_path_factory.mktemp("guest")
    below_tmp = tmp_path_factory.mktemp(
        "directory"
    )  # the guest has its own /tmp, and shows this of the machine's
    options = [
        f"--rootdir={REPOSITORY}",
        f"-c={REPOSITORY}/pyproject.toml",
        "-n0",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        f"--timeout={TIMEOUT_SECONDS}",
    ]
    command = [
        "env",
        "KUBELETX_TEST_CONTAINERDS=containerd-a",  # each start takes many seconds there
        sys.executable,
        "-m",
        "pytest",
        *options,
        f"--junitxml={RESULTS}/junit.xml",
        *(f"{REPOSITORY}/{one}" for one in TESTS),
    ]
    run = run_with_cgroup_v2(command, results, directory=below_tmp, timeout_seconds=TIMEOUT_SECONDS)
    report = results / "junit.xml"
    return run, _outcomes(report) if report.exists() else {}


@pytest.mark.parametrize("name", TESTS, ids=lambda name: name.rpartition("::")[2])
def test_on_cgroup_v2(name: str, guest: tuple[GuestRun, dict[str, str]]) -> None:
    run, outcomes = guest
    outcome = outcomes.get(name, f"has not run\n{run.output[-4000:]}\n{run.console[-2000:]}")
    assert outcome == "passed", f"{name}: {outcome}"


def test_the_guest_s_run_ended_without_an_error(guest: tuple[GuestRun, dict[str, str]]) -> None:
    """Such as something that a test left behind."""
    run, outcomes = guest
    assert run.status == 0, f"{run.output[-4000:]}\n{run.console[-2000:]}"
    assert set(outcomes) == set(TESTS)


def _outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of each test: passed, or the texts of its failures, errors and skips."""
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
        problems = [f"{one.tag}: {one.attrib.get('message', '')}\n{one.text or ''}" for one in case]
        found.setdefault(name, []).extend(
            problem
            for one, problem in zip(case, problems, strict=True)
            if one.tag in ("failure", "error", "skipped")
        )
    return {name: "\n".join(problems) or "passed" for name, problems in found.items()}
