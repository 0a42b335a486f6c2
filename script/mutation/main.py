"""Runs the contract suite on every mutant of the example plugin, and prints the mutants that it does not catch.

A mutant is caught if the suite fails. The suite ends by itself on every mutant: its calls have time limits. A run that
takes longer than `LIMIT_SECONDS` counts as a hang, which is an error of the suite, and never as caught.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .mutators import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "local-process"
PACKAGE = "kubeletx_local_process"
MODULES = ("runtime.py", "processes.py")
TESTS = "tests/test_contract.py::TestProcessRuntime"
LIMIT_SECONDS = 300.0
NEEDED_PERCENT = 95.0


class Result(NamedTuple):
    """Outcome of one mutant: caught, survived or hang; `output`: what pytest printed."""

    outcome: str
    seconds: float
    output: str


def all_mutants() -> list[tuple[str, Mutant]]:
    """Return the mutants of all modules, each with the name of its module."""
    return [
        (module, one)
        for module in MODULES
        for one in mutants_of((EXAMPLE / "src" / PACKAGE / module).read_text())
    ]


def run(module: str, mutant: Mutant | None) -> Result:
    """Run the suite on a copy of the plugin with the mutant; None: on the unchanged plugin."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kubeletx-mutant-") as directory:
        source = Path(directory, "src")
        shutil.copytree(EXAMPLE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            (source / PACKAGE / module).write_text(mutant.text)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["--timeout=0", "--basetemp", f"{directory}/tmp", str(EXAMPLE / TESTS)]
        paths = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
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
            outcome = "hang"
        end_leftovers(directory)
    return Result(outcome, time.monotonic() - begin, output)


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


def main() -> int:
    """Run what the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="script/mutants", description="Mutation test of the contract suite."
    )
    parser.add_argument("--list", action="store_true", help="name the mutants and run nothing")
    parser.add_argument("--only", type=int, action="append", metavar="NUMBER", help="one mutant")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at a time (default: 2)")
    options = parser.parse_args()
    found = list(enumerate(all_mutants(), 1))
    if options.list:
        for number, (module, one) in found:
            print(f"{number:3} {module}:{one.line} {one.what}")
        return 0
    unchanged = run("", None)
    if unchanged.outcome != "survived":
        print(f"the suite fails on the unchanged plugin:\n{unchanged.output}")
        return 1
    print(f"the unchanged plugin passes in {unchanged.seconds:.0f} s", flush=True)
    chosen = [entry for entry in found if not options.only or entry[0] in options.only]

    def work(entry: tuple[int, tuple[str, Mutant]]) -> Result:
        number, (module, one) = entry
        result = run(module, one)
        print(
            f"{number:3} {result.outcome:8} {result.seconds:4.0f} s  {module}:{one.line} {one.what}",
            flush=True,
        )
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(work, chosen))
    for (number, (module, one)), result in zip(chosen, results, strict=True):
        if options.only:
            print(result.output)
        if result.outcome != "caught":
            print(f"\n{number} {result.outcome}:\n{difference(module, one)}")
    caught = sum(one.outcome == "caught" for one in results)
    hangs = sum(one.outcome == "hang" for one in results)
    percent = 100 * caught / len(results)
    print(f"\n{caught} of {len(results)} mutants caught ({percent:.1f} %), {hangs} hangs")
    return 0 if percent >= NEEDED_PERCENT and not hangs else 1


if __name__ == "__main__":
    sys.exit(main())
