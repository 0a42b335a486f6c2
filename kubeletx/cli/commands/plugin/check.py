"""``kubeletx plugin check``: runs the contract suites and other checks of a plugin."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import kubeletx

from ...options.go_flags import command
from .environment import run_shown

CHECK_MODULE = "kubeletx.testing.check"


@command(short_help="Check a plugin with its contract suites.")
@click.argument("distribution", metavar="DIST")
@click.option(
    "--endpoint",
    default="",
    metavar="URL",
    help="Endpoint of a runtime to test, such as process:///, instead of the plugin's own tests of its runtimes.",
)
@click.option(
    "--settings",
    default="",
    metavar="FILE|JSON",
    help="Settings of that runtime: a file of YAML or JSON, or JSON text.",
)
def check(distribution: str, endpoint: str, settings: str) -> int:
    """Check an installed plugin: load it, check its types, and run its contract suites.

    DIST is the directory of its source tree, or the name of an installed distribution; both must be installed in the
    Python environment of this command. The contract suites run in the plugin's own tests, as 'kubeletx plugin
    new' writes them; a runtime without tests needs --endpoint. Types are checked if mypy is installed.

    The exit code is 0 if everything passed, 1 if something failed, and 2 if the plugin is not installed or an option is
    missing.
    """
    options = [f"--endpoint={endpoint}", f"--settings={settings}"]
    source = Path(kubeletx.__file__).parents[1]
    if not source.is_dir():  # a zipapp: option -m and the processes of the check find it by this variable
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    return run_shown([sys.executable, "-m", CHECK_MODULE, *options, "--", distribution])
