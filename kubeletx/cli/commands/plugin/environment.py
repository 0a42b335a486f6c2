"""Finds the Python environment of the agent, and runs its pip."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

import click
import msgspec

from kubeletx.api import Conflict, Unavailable
from kubeletx.server.views import VersionView

from ...connection.client import AgentClient, not_running

PROBE_SECONDS = 60.0

# Runs in the environment that it describes, which may differ from this command's environment.
PROBE = """
import importlib.metadata, importlib.util, json, os, sys, sysconfig
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
plugins = []
for d in importlib.metadata.distributions():
    try:
        found = [(p.name, d.metadata["Name"], d.metadata["Version"]) for p in d.entry_points if p.group == "kubeletx"]
    except Exception:  # damaged metadata of any distribution
        continue
    plugins += [dict(zip(("name", "distribution", "version"), row)) for row in found if all(row)]
print(json.dumps({
    "prefix": sys.prefix,
    "has_pip": importlib.util.find_spec("pip") is not None,
    "is_managed": sys.prefix == sys.base_prefix and os.path.exists(marker),
    "plugins": plugins,
}))
"""


class PluginOfEnvironment(msgspec.Struct, frozen=True, order=True):
    """One entry point in group ``kubeletx``, with its distribution."""

    name: str
    distribution: str
    version: str


class PythonEnvironment(msgspec.Struct, frozen=True):
    """A Python environment.

    `is_managed`: the system's package manager owns it, so pip does not change it (PEP 668). `plugins`: those that
    are installed in it.
    """

    prefix: str
    has_pip: bool
    is_managed: bool
    plugins: tuple[PluginOfEnvironment, ...] = ()


def interpreter_of(agent: AgentClient) -> tuple[str, bool]:
    """Return the Python interpreter of the running agent, or of this command if no agent runs; and whether one runs.

    Raises KubeletxError if an agent runs and does not answer.
    """
    try:
        version = agent.get("/version", VersionView)
    except Unavailable as error:
        if error.message != not_running(agent.socket_path).message:
            raise
        return sys.executable, False
    return version.python or sys.executable, True


def read_environment(python: str) -> PythonEnvironment:
    """Describe the environment of an interpreter. Raises Unavailable if it does not run."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=PROBE_SECONDS,
            cwd="/",
            start_new_session=True,
        )
        return msgspec.json.decode(done.stdout, type=PythonEnvironment)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise Unavailable(f"the Python interpreter {python} of the agent does not run: {error}") from error


def check_pip(environment: PythonEnvironment, python: str) -> None:
    """Raise Conflict, with what to do, if pip cannot change the environment."""
    if environment.is_managed:
        raise Conflict(
            f"environment {environment.prefix}: the system's package manager owns it, so pip does not change it; "
            "install the plugin's package of the system, or run kubeletx from a virtual environment"
        )
    if not environment.has_pip:
        raise Conflict(
            f"environment {environment.prefix} has no pip; run '{python} -m ensurepip', "
            "or install the plugin with the tool that made the environment"
        )


def run_pip(python: str, *arguments: str) -> None:
    """Run pip in the environment of the interpreter; its output is shown. Raises ClickException if pip fails."""
    code = run_shown([python, "-P", "-m", "pip", *arguments])
    if code != 0:
        raise click.ClickException(
            f"pip {arguments[0]} failed with exit code {code}; its output above has the reason"
        )


def run_shown(command: Sequence[str]) -> int:
    """Run a program and show its output; return its exit code. It gets no input. Ctrl-C interrupts it by SIGINT."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
