"""What ``apply``, ``replace`` and ``delete -f`` share: reading files, and showing what became of each pod."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from kubeletx.api import InvalidConfig
from kubeletx.api.text import printable
from kubeletx.server.status import to_error
from kubeletx.server.views import ApplyReport

from .client import AgentClient, Parameters
from .exit_codes import ExitCode
from .printers import print_object

_SUFFIXES = (".yaml", ".yml", ".json")


class Manifest(NamedTuple):
    """One file's bytes and its name for messages."""

    origin: str
    data: bytes


def read_manifests(files: tuple[str, ...]) -> Iterator[Manifest]:
    """Files, all manifests of directories in order, and ``-`` for standard input."""
    for file in files:
        if file == "-":
            yield Manifest("standard input", sys.stdin.buffer.read())
            continue
        path = Path(file)
        paths = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not paths:
            raise InvalidConfig(obj=file, field="--filename", problem=f"holds no {', '.join(_SUFFIXES)} file")
        for found in paths:
            yield Manifest(printable(str(found)), _read(found))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise InvalidConfig(
            obj=str(path), field="--filename", problem=f"cannot be read: {err.strerror}"
        ) from err


def send(agent: AgentClient, files: tuple[str, ...], output: str | None, **parameters: bool) -> int:
    """Send every manifest; one line for each pod. Mistakes in one do not stop the others."""
    failed = False
    for manifest in read_manifests(files):
        query: Parameters = {"origin": manifest.origin, **parameters}
        report = agent.call("POST", "/v1/pods", ApplyReport, query, manifest.data)
        if not report.items:
            click.echo(f"Error: {manifest.origin}: holds no pod", err=True)
            failed = True
        for item in report.items:
            if item.error is not None:
                click.echo(f"Error: {manifest.origin}: {to_error(item.error)}", err=True)
                failed = True
            elif output in ("json", "yaml"):
                print_object(item.pod, output)
            else:
                click.echo(
                    f"pod/{item.pod.name}" if output == "name" else f"pod/{item.pod.name} {item.action}"
                )
    return ExitCode.FAILED if failed else ExitCode.OK
