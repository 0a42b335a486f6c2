"""Shared code of ``apply``, ``replace`` and ``delete -f``: reads files and shows the result for each pod."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from kubeletx.api import InvalidConfig
from kubeletx.api.text import printable
from kubeletx.server.status import to_error
from kubeletx.server.views import ApplyReport

from ..connection.client import AgentClient, Parameters
from ..output.printers import print_object
from .exit_codes import ExitCode

F = TypeVar("F", bound=Callable[..., Any])

_DRY_RUNS = {"none": "", "client": " (dry run)", "server": " (server dry run)"}
_SUFFIXES = (".yaml", ".yml", ".json")


class ManifestText(NamedTuple):
    """Content of one manifest file. `origin`: its name for messages."""

    origin: str
    data: bytes


def read_manifests(files: tuple[str, ...]) -> Iterator[ManifestText]:
    """Yield the files, all manifests in directories in order, and standard input for ``-``."""
    for file in files:
        if file == "-":
            yield ManifestText("standard input", sys.stdin.buffer.read())
            continue
        path = Path(file)
        paths = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not paths:
            raise InvalidConfig(obj=file, field="--filename", problem=f"holds no {', '.join(_SUFFIXES)} file")
        for found in paths:
            yield ManifestText(printable(str(found)), _read(found))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise InvalidConfig(
            obj=str(path), field="--filename", problem=f"cannot be read: {err.strerror}"
        ) from err


def manifest_options(function: F) -> F:
    """Decorator that adds ``-f``, ``--validate`` and ``--dry-run`` to a command, as in kubectl."""
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            required=True,
            metavar="FILE",
            help="File, directory, or - (repeatable).",
        ),
        click.option(
            "--validate",
            is_flag=False,
            flag_value="strict",
            default="warn",
            callback=_validation,
            metavar="strict|warn|ignore",
            help="Refuse pods with unknown fields (strict or true), warn about these, or ignore them (false). "
            " [default: warn]",
        ),
        click.option(
            "--dry-run",
            is_flag=False,
            flag_value="client",
            default="none",
            callback=_dry_run,
            metavar="none|server|client",
            help="Only say what would be done; the agent finds it out for both server and client.  [default: none]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _validation(_: click.Context, __: click.Parameter, value: str) -> str:
    """Convert the value of kubectl's ``--validate`` to that of the API's field validation."""
    found = {"strict": "Strict", "true": "Strict", "warn": "Warn", "ignore": "Ignore", "false": "Ignore"}.get(
        value
    )
    if found is None:
        raise click.UsageError(
            f'--validate "{value}" is not one of strict (or true), warn, ignore (or false)'
        )
    return found


def _dry_run(_: click.Context, __: click.Parameter, value: str) -> str:
    """Return the text that follows a pod's action in the output; empty without a dry run."""
    if value not in _DRY_RUNS:
        raise click.UsageError(f'Invalid dry-run value ({value}). Must be "none", "server", or "client".')
    return _DRY_RUNS[value]


def send(
    agent: AgentClient,
    files: tuple[str, ...],
    output: str | None,
    *,
    validate: str,
    dry_run: str,
    **parameters: bool,
) -> int:
    """Send every manifest to the agent and print one line for each pod. Returns the exit code.

    An invalid manifest does not stop the others. `parameters`: further query parameters.
    """
    failed = False
    parameters["dryRun"] = bool(dry_run)
    for manifest in read_manifests(files):
        query: Parameters = {"origin": manifest.origin, "fieldValidation": validate, **parameters}
        report = agent.call("POST", "/v1/pods", ApplyReport, query, manifest.data)
        if not report.items:
            click.echo(f"Error: {manifest.origin}: holds no pod", err=True)
            failed = True
        for item in report.items:
            for warning in item.warnings:
                click.echo(f"Warning: {warning}", err=True)
            if item.error is not None:
                click.echo(f"Error: {manifest.origin}: {to_error(item.error)}", err=True)
                failed = True
            elif output in ("json", "yaml"):
                print_object(item.pod, output)
            else:
                action = "" if output == "name" else f" {item.action}{dry_run}"
                click.echo(f"pod/{item.pod.name}{action}")
    return ExitCode.FAILED if failed else ExitCode.OK
