"""Runs the check: ``python -m kubeletx.testing.check DIST [--endpoint URL] [--settings FILE|JSON]``.

Exit codes: 0 everything passed, 1 something failed, 2 wrong use or not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import yaml

from kubeletx import __version__
from kubeletx.api import InvalidConfig

from .distribution import Checked, find_distribution
from .found import FoundPlugin, Registered, find
from .report import Mark, Report
from .results import ENDPOINT, WITHOUT, TestedEndpoint, TestResult
from .suites import run_suites

SUITE_NAMES = {
    "runtime": "RuntimeContract",
    "health-check": "HealthCheckContract",
    "pod-source": "PodSourceContract",
    "admission-check": "AdmissionCheckContract",
    "panel": "PanelContract",
    "volume-driver": "VolumeDriverContract",
    "remedy": "RemedyContract",
}
ENDPOINT_SUITE = Path(__file__).with_name("endpoint_suite.py")
NEEDED = ("pytest", "pytest_asyncio")
MYPY_SECONDS = 600.0
LONGEST_OUTPUT = 20


def main(arguments: list[str]) -> int:
    """Check the distribution and return the exit code."""
    parser = argparse.ArgumentParser(prog="kubeletx plugin check")
    parser.add_argument("distribution")
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--settings", default="")
    given = parser.parse_args(arguments)
    report = Report()
    try:
        missing = [name.replace("_", "-") for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise InvalidConfig(
                field=sys.prefix,
                problem=f"{' and '.join(missing)} not installed, with which the contract suites run",
                fix=f"run 'pip install {' '.join(missing)}'",
            )
        checked = find_distribution(given.distribution)
        settings = read_settings(given.settings)
        if settings and not given.endpoint:
            raise InvalidConfig(
                field="--settings",
                problem="there is no endpoint",
                fix="add --endpoint URL of the runtime to test",
            )
        check(checked, given.endpoint, settings, report)
    except InvalidConfig as error:
        click.echo(f"Error: {error}", err=True)
        return 2
    report.end()
    return 1 if report.has_failed else 0


def read_settings(text: str) -> dict[str, object]:
    """Return the settings from JSON text or from a file of YAML or JSON. Raises InvalidConfig."""
    if not text:
        return {}
    try:
        document = yaml.safe_load(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidConfig(
            field="--settings", problem=f"it cannot be read: {error}", fix="give a file, or JSON as {...}"
        ) from error
    if not isinstance(document, dict):
        raise InvalidConfig(field="--settings", problem="it is no mapping", fix="write it as {...}")
    return document


def check(checked: Checked, url: str, settings: dict[str, object], report: Report) -> None:
    """Run all checks. Raises InvalidConfig if a suite cannot run without an option that is missing."""
    source = f", source {checked.tree}" if checked.tree else ""
    report.show(f"{checked.name} {checked.version}{source}; kubeletx {__version__}")
    plugins, reason = find(checked.name)
    if reason:
        report.note(Mark.FAILED, f"{checked.name}: {reason}")
        return
    for plugin in plugins:
        show_plugin(plugin, report)
    if any(plugin.state != "ready" for plugin in plugins):
        return
    registered = [item for plugin in plugins for item in plugin.registered]
    tested = endpoint_of(checked, registered, url, settings)
    if tested is None and checked.tests is None:
        raise InvalidConfig(
            field=checked.name,
            problem=f"it has no tests that make {', '.join(f'{item.hook}/{item.name}' for item in registered)}",
            fix="name the directory of its source tree with tests/ instead, or give --endpoint URL of a runtime",
        )
    check_types(plugins, checked, report)
    check_contracts(checked, registered, tested, report)


def show_plugin(plugin: FoundPlugin, report: Report) -> None:
    """Print what a plugin registers, with the capabilities of its runtimes."""
    made_for = f", made for kubeletx {plugin.made_for}" if plugin.made_for else ""
    report.show(f"\nplugin {plugin.name} ({plugin.module}{made_for}): {plugin.state}")
    if plugin.state != "ready":
        report.show(plugin.reason, 2)
        report.note(Mark.FAILED, f"plugin {plugin.name}: {plugin.state}: {plugin.reason}")
        return
    report.note(Mark.PASSED, f"plugin {plugin.name}: ready")
    for item in plugin.registered:
        report.show(f"{item.hook}/{item.name}  {item.about}", 2)
        show_capabilities(item, report)


def show_capabilities(registered: Registered, report: Report) -> None:
    """Print the declared capabilities of a runtime, each with its methods."""
    if registered.hook != "runtime":
        return
    label = f"capabilities of {registered.hook}/{registered.name}"
    if registered.capabilities is None:
        report.note(Mark.NOT_APPLICABLE, f"{label}: {registered.unknown}")
        return
    for each in registered.capabilities:
        mark, text = Mark.PASSED, ", ".join(each.methods)
        if each.missing:
            mark, text = Mark.FAILED, f"it has no {', '.join(each.missing)}"
        report.show(f"{mark} {each.name}: {text}", 4)
    broken = [each.name for each in registered.capabilities if each.missing]
    names = ", ".join(each.name for each in registered.capabilities) or "none declared"
    problem = f"methods of {', '.join(broken)} are missing"
    report.note(Mark.FAILED if broken else Mark.PASSED, f"{label}: {problem if broken else names}")


def endpoint_of(
    checked: Checked, registered: list[Registered], url: str, settings: dict[str, object]
) -> TestedEndpoint | None:
    """Return the runtime that `--endpoint` names; None without that option. Raises InvalidConfig."""
    if not url:
        return None
    scheme = url.partition("://")[0]
    kinds = [item for item in registered if item.hook == "runtime" and f"{scheme}://" in item.schemes]
    if "://" not in url or not kinds:
        known = ", ".join(text for item in registered for text in item.schemes) or "none: it has no runtime"
        raise InvalidConfig(
            field="--endpoint",
            problem=f"no runtime of {checked.name} serves {url!r}",
            fix=f"its runtimes serve {known}",
        )
    return TestedEndpoint(checked.name, kinds[0].name, url, settings)


def check_types(plugins: tuple[FoundPlugin, ...], checked: Checked, report: Report) -> None:
    """Check types with mypy, if it is installed."""
    report.show("\ntypes")
    if not has_mypy():
        reason = "mypy is not installed, or cannot read kubeletx in a zipapp"
        report.show(f"{Mark.NOT_APPLICABLE} {reason}", 2)
        report.note(Mark.NOT_APPLICABLE, f"types: {reason}")
        return
    errors = type_errors({plugin.module.partition(".")[0] for plugin in plugins}, checked.tree)
    for line in errors:
        report.show(line, 2)
    if errors:
        more = f" and {len(errors) - 1} more lines" if len(errors) > 1 else ""
        report.note(Mark.FAILED, f"types: {errors[0]}{more}")
    else:
        report.show(f"{Mark.PASSED} mypy finds no error", 2)
        report.note(Mark.PASSED, "types")


def check_contracts(
    checked: Checked, registered: list[Registered], tested: TestedEndpoint | None, report: Report
) -> None:
    """Run the contract suite of everything that is registered."""
    results: dict[str, list[TestResult]] = {}
    shown: str | None = None
    for result in all_results(checked, tested):
        if result.hook != shown:
            report.show(f"\n{SUITE_NAMES.get(result.hook, 'tests')}")
            shown = result.hook
        report.test(result)
        results.setdefault(result.hook, []).append(result)
    for hook in sorted({item.hook for item in registered}):
        names = ", ".join(item.name for item in registered if item.hook == hook)
        if hook in results:
            report.suite(f"contract of {hook}/{names}", results[hook])
            continue
        if "" in results:
            report.note(Mark.FAILED, f"contract of {hook}/{names}: not run, see below")
            continue
        mark = Mark.NOT_APPLICABLE if checked.tests is None else Mark.FAILED
        where = checked.tests or "the tests directory of its source tree"
        more = ", or give --endpoint URL" if hook == "runtime" else ""
        report.note(
            mark, f"contract of {hook}/{names}: no class of {where} is a {SUITE_NAMES[hook]}; add one{more}"
        )
    for result in results.get("", ()):
        report.note(Mark.FAILED, f"{result.title}: {result.sentence}")


def all_results(checked: Checked, tested: TestedEndpoint | None) -> Iterator[TestResult]:
    """Run the distribution's own contract tests, and the suite at the endpoint instead of its runtimes' own."""
    if tested is not None:
        environment = {ENDPOINT: msgspec.json.encode(tested).decode()}
        options = ("-c", os.devnull, "--rootdir", str(ENDPOINT_SUITE.parent), "-o", "asyncio_mode=auto")
        yield from run_suites(ENDPOINT_SUITE, ENDPOINT_SUITE.parent, environment, *options)
    if checked.tests is not None and checked.tree is not None:
        without = {WITHOUT: "runtime"} if tested is not None else {}
        yield from run_suites(checked.tests, checked.tree, without)


def has_mypy() -> bool:
    """Return True if mypy is installed and can read kubeletx, which it cannot in a zipapp."""
    return importlib.util.find_spec("mypy") is not None and Path(__file__).exists()


def type_errors(packages: set[str], tree: Path | None) -> list[str]:
    """Return the errors of mypy in the installed packages, one line each; empty: there are none.

    `tree`: the source tree, whose ``[tool.mypy]`` is used if it has one; None: not known. Without it, functions without
    annotations are checked too.
    """
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    if not _has_config(tree):
        command += ["--config-file=", "--check-untyped-defs", "--disable-error-code=type-abstract"]
    for package in sorted(packages):
        command += ["-p", package]
    environment = dict(os.environ)
    if tree is None:
        environment.setdefault("MYPY_CACHE_DIR", os.devnull)
    elif (tree / "src").is_dir():
        environment["MYPYPATH"] = str(tree / "src")
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=MYPY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"mypy did not end within {MYPY_SECONDS:g} s"]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if ": note: " not in line]
    return lines[:LONGEST_OUTPUT] if done.returncode else []


def _has_config(tree: Path | None) -> bool:
    if tree is None:
        return False
    try:
        return "mypy" in tomllib.loads((tree / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
