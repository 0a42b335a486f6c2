"""Runs the contract suite on every mutant of the example plugin, and prints the mutants that it does not catch.

A mutant is caught if the suite fails; its run ends with the first failure. Tests run in the order of their time on the
unchanged plugin, so most mutants are caught within seconds. The mutants of ``equivalents.toml`` are left out.

The suite ends by itself on every mutant: its calls have time limits. A run that takes longer than `LIMIT_SECONDS` is
ended and counts as caught, but the exit status is 1: it is an error of the suite.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from .equivalents import entries, is_equivalent
from .mutators import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "local-process"
PACKAGE = "kubeletx_local_process"
MODULES = ("runtime.py", "processes.py")
TESTS = "tests/test_contract.py::TestProcessRuntime"
LIMIT_SECONDS = 180.0
NEEDED_PERCENT = 95.0


class Result(NamedTuple):
    """Outcome of one mutant: caught, survived or time limit; `output`: what pytest printed."""

    outcome: str
    seconds: float
    output: str


def all_mutants(equivalents: Sequence[dict[str, Any]] | None = None) -> tuple[list[tuple[str, Mutant]], int]:
    """Return the mutants of all modules, each with the name of its module, and how many equivalent ones are left out.

    Raises ValueError if an entry of `equivalents` (None: ``equivalents.toml``) describes no mutant.
    """
    unused, kept, left_out = list(entries() if equivalents is None else equivalents), [], 0
    for module in MODULES:
        source = (EXAMPLE / "src" / PACKAGE / module).read_text()
        for mutant in mutants_of(source):
            same = [entry for entry in unused if is_equivalent(module, source, mutant, entry)]
            if same:
                unused.remove(same[0])
                left_out += 1
            else:
                kept.append((module, mutant))
    if unused:
        raise ValueError(
            f"equivalents.toml: no mutant changes {unused[0]['before']!r}; remove or correct the entry"
        )
    return kept, left_out


def run(module: str, mutant: Mutant | None, tests: Sequence[str] = (TESTS,), report: str = "") -> Result:
    """Run the suite on a copy of the plugin with the mutant; None: on the unchanged plugin.

    `tests`: node ids below the plugin's directory, in their order. `report`: path of pytest's XML report; empty: none.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kubeletx-mutant-") as directory:
        source = Path(directory, "src")
        shutil.copytree(EXAMPLE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            (source / PACKAGE / module).write_text(mutant.text)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["--timeout=0", "--basetemp", f"{directory}/tmp", *(f"{EXAMPLE}/{test}" for test in tests)]
        command += ["--junitxml", report] if report else []
        paths = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=LIMIT_SECONDS)
            outcome = "survived" if child.returncode == 0 else "caught"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            outcome = "time limit"
        end_leftovers(directory)
    return Result(outcome, time.monotonic() - begin, output)


def failed_in(result: Result) -> str:
    """Return the name of the test that failed; empty if none did."""
    match = re.search(r"^(?:FAILED|ERROR) \S+::(\w+)", result.output, re.MULTILINE)
    return match[1] if match else ""


def end_leftovers(directory: str) -> None:
    """Kill the processes that a mutant has left: their supervisor's arguments or their output name its directory."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            links = [str((entry / name).readlink()) for name in ("fd/1", "cwd")]
            named = directory.encode() in (entry / "cmdline").read_bytes()
            if named or any(link.startswith(directory) for link in links):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended, or its descriptors are closed


def difference(module: str, mutant: Mutant) -> str:
    """Return the change of a mutant as a diff."""
    before = ast.unparse(ast.parse((EXAMPLE / "src" / PACKAGE / module).read_text()))
    lines = difflib.unified_diff(
        before.splitlines(), mutant.text.splitlines(), module, module, n=2, lineterm=""
    )
    return "\n".join(lines)


def run_unchanged(jobs: int) -> tuple[list[Result], list[str]]:
    """Run the suite `jobs` times at once on the unchanged plugin, as many as later mutants.

    Returns the results, and the node ids of the tests, quick ones first; none if the suite has failed.
    """
    with tempfile.TemporaryDirectory(prefix="kubeletx-mutants-") as directory:
        reports = [f"{directory}/{number}.xml" for number in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(lambda report: run("", None, report=report), reports))
        if any(result.outcome != "survived" for result in results):
            return results, []
        cases = ElementTree.parse(reports[0]).iter("testcase")
        timed = sorted((float(case.get("time", "0")), case.get("name", "")) for case in cases)
    return results, [f"{TESTS}::{name}" for _, name in timed]


def main() -> int:
    """Run what the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="script/mutants", description="Mutation test of the contract suite."
    )
    parser.add_argument("--list", action="store_true", help="name the mutants and run nothing")
    parser.add_argument("--only", type=int, action="append", metavar="NUMBER", help="one mutant")
    jobs = 2 * (os.cpu_count() or 1)
    parser.add_argument(
        "--jobs",
        type=int,
        default=jobs,
        metavar="N",
        help=f"mutants at a time (default: {jobs}, two for each CPU)",
    )
    options = parser.parse_args()
    mutants, left_out = all_mutants()
    numbered = list(enumerate(mutants, 1))
    if options.list:
        for number, (module, mutant) in numbered:
            print(f"{number:3} {module}:{mutant.line} {mutant.what}")
        return 0
    chosen = [entry for entry in numbered if not options.only or entry[0] in options.only]
    unchanged, tests = run_unchanged(min(options.jobs, len(chosen)))
    for result in unchanged:
        if result.outcome != "survived":
            print(f"the suite fails on the unchanged plugin:\n{result.output}")
            return 1
    print(f"the unchanged plugin passes in {unchanged[0].seconds:.0f} s", flush=True)

    def work(entry: tuple[int, tuple[str, Mutant]]) -> Result:
        number, (module, mutant) = entry
        result = run(module, mutant, tests)
        print(
            f"{number:3} {result.outcome:10} {result.seconds:4.0f} s  {module}:{mutant.line} {mutant.what}  {failed_in(result)}",
            flush=True,
        )
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(work, chosen))
    for (number, (module, mutant)), result in zip(chosen, results, strict=True):
        if options.only:
            print(result.output)
        if result.outcome != "caught":
            print(f"\n{number} {result.outcome}:\n{difference(module, mutant)}")
    late = sum(result.outcome == "time limit" for result in results)
    caught = late + sum(result.outcome == "caught" for result in results)
    percent = 100 * caught / len(results)
    print(
        f"\n{caught} of {len(results)} mutants caught ({percent:.1f} %), {late} of them by the time limit; "
        f"{left_out} equivalent mutants are left out"
    )
    return 0 if percent >= NEEDED_PERCENT and not late else 1


if __name__ == "__main__":
    sys.exit(main())
