"""Runs contract suites in a pytest process and yields the result of each test as it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from .results import RESULTS_FILE, STARTED, TestResult

SILENT_SECONDS = 900.0
"""Longest time without a result. The longest call of a suite, an image pull, may take 600 s."""
LOOK_SECONDS = 0.1
SHOWN_LINES = 20
EXPLAINED = (0, 1, 2, 5)
"""Exit codes of pytest that need no more words: all passed, some failed, a file was not imported, no tests."""


def run_suites(
    tests: Path, directory: Path, environment: Mapping[str, str], *options: str
) -> Iterator[TestResult]:
    """Run the contract suites in `tests`, a file or directory, from the working directory `directory`.

    `environment`: further variables. A last result without a hook is a failure of the run itself.
    """
    with tempfile.TemporaryDirectory() as place:
        results, output = Path(place, "results"), Path(place, "output")
        results.touch()
        command = [sys.executable, "-m", "pytest", "-p", "kubeletx.testing.check.reporter"]
        command += ["-p", "no:cacheprovider", "-o", "addopts=", *options, str(tests)]
        inherited = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**inherited, **environment, RESULTS_FILE: str(results)},
                start_new_session=True,
            )
        ended = False
        started: TestResult | None = None
        try:
            for result in _follow(process, results):
                if result.outcome == STARTED:
                    started = result
                else:
                    started = None
                    yield result
            ended = True
        finally:
            if not ended or process.poll() is None:
                process.kill()
            process.wait()
        lines = output.read_text(errors="replace").strip().splitlines()[-SHOWN_LINES:]
        if started is not None:
            text = f"the test process ended with exit code {process.returncode} in this test"
            if process.returncode == -signal.SIGKILL:
                text += f", probably since it had no result for {SILENT_SECONDS:g} s"
            if process.returncode == 1 and lines:
                text += f": {lines[-1]}"
            yield TestResult(started.title, started.hook, "failed", text)
        elif process.returncode not in EXPLAINED:
            text = "\n".join(lines)
            yield TestResult(f"pytest ended with exit code {process.returncode}", "", "failed", text)


def _follow(process: subprocess.Popen[bytes], results: Path) -> Iterator[TestResult]:
    heard = time.monotonic()
    with results.open("rb") as file:
        while True:
            ended = process.poll() is not None
            while (line := file.readline()).endswith(b"\n"):
                heard = time.monotonic()
                yield msgspec.json.decode(line, type=TestResult)
            file.seek(-len(line), os.SEEK_CUR)
            if ended:
                return
            if time.monotonic() - heard > SILENT_SECONDS:
                process.kill()
                return
            time.sleep(LOOK_SECONDS)
