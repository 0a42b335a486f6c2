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
    """Content of one manifest file. `origin`: path of the file, or ``standard input``, for messages."""

    origin: str
    data: bytes


def read_manifests(files: tuple[str, ...]) -> Iterator[ManifestText]:
    """Read manifest files; yields their contents in order.

    `files`: paths of files; paths of directories, whose .yaml, .yml and .json files are read in order of name; and
    ``-`` for standard input. Raises InvalidConfig for a directory without such files or an unreadable file.
    """
    for file in files:
        if file == "-":
            yield ManifestText("standard input", sys.stdin.buffer.read())
            continue
        if file.startswith(("http://", "https://")):
            raise InvalidConfig(
                obj=file,
                field="--filename",
                problem="is a URL, and kubeletx downloads no manifests",
                fix=f"pipe it in: curl -fsSL {file} | kubeletx COMMAND -f -",
            )
        path = Path(file)
        paths = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not paths:
            raise InvalidConfig(obj=file, field="--filename", problem=f"holds no {', '.join(_SUFFIXES)} file")
        for manifest in paths:
            yield ManifestText(printable(str(manifest)), _read(manifest))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise InvalidConfig(
            obj=str(path), field="--filename", problem=f"cannot be read: {err.strerror}"
        ) from err


files_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File, directory, or - (repeatable).",
)


def manifest_options(function: F) -> F:
    """Decorator that adds ``-f``, ``--validate`` and ``--dry-run`` to a command, as in kubectl."""
    options = (
        files_option,
        click.option(
            "-k",
            "--kustomize",
            metavar="DIR",
            hidden=True,
            expose_value=False,
            is_eager=True,
            callback=_no_kustomize,
        ),
        click.option(
            "--validate",
            is_flag=False,
            flag_value="strict",
            default="warn",
            callback=_validation,
            metavar="strict|warn|ignore",
            help="strict or true: refuse pods with unknown fields; warn: print a warning; ignore or false: ignore these fields. "
            " [default: warn]",
        ),
        click.option(
            "--dry-run",
            is_flag=False,
            flag_value="client",
            default="none",
            callback=_dry_run,
            metavar="none|server|client",
            help="Only print what would be done. The agent does the check in both cases.  [default: none]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _no_kustomize(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            f"kubeletx builds no kustomizations; use 'kubectl kustomize {value} | kubeletx {ctx.info_name} -f -'"
        )


def _validation(_: click.Context, __: click.Parameter, value: str) -> str:
    """Convert a value of ``--validate``, as in kubectl, to a value of the API's ``fieldValidation``."""
    level = {"strict": "Strict", "true": "Strict", "warn": "Warn", "ignore": "Ignore", "false": "Ignore"}.get(
        value
    )
    if level is None:
        raise click.UsageError(
            f'--validate "{value}" is not one of strict (or true), warn, ignore (or false)'
        )
    return level


def _dry_run(_: click.Context, __: click.Parameter, value: str) -> str:
    """Check the value of ``--dry-run``; returns the text to print after a pod's action, empty without a dry run."""
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
    """Send every manifest to the agent and print the result for each pod. Returns the exit code.

    If a pod fails, the others are still applied. `validate`: value of the query's ``fieldValidation``. `dry_run`: from
    `manifest_options`, empty without a dry run. `parameters`: further query parameters, such as ``force``.
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
                print_object(item.object or item.pod, output)
            else:
                action = "" if output == "name" else f" {item.action}{dry_run}"
                kind, name = "pod", item.pod.name
                if item.object:
                    kind, name = item.object["kind"].lower(), item.object["metadata"]["name"]
                click.echo(f"{kind}/{name}{action}")
    return ExitCode.FAILED if failed else ExitCode.OK
