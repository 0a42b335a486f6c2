"""``kubeletx report``: writes a folder about the node for a bug report, without secrets, readable without an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from kubeletx.api.errors import KubeletxError, Unavailable
from kubeletx.kube.masking import masked, masked_pod, masked_text
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.linux.files import replace_unflushed
from kubeletx.linux.programs import run_blocking
from kubeletx.server.views import ConfigValue, VersionView

from ...connection.client import AgentClient, Parameters, pod_path
from ...options.exit_codes import ExitCode
from ...options.go_flags import command
from ...options.settings import Invocation
from ...output.printers import to_yaml
from ...output.progress import ProgressLine
from ...output.words import now
from ..config import as_document
from ..describe import pod_sheet
from .ui import find_web

ANSWER_SECONDS: Final = 20.0
HUNG_SECONDS: Final = 1.0
"""Longest wait for an answer of an agent that has not answered the first request."""
_LOG_LINES: Final = 200
_PROGRAM_SECONDS: Final = 60.0
_COMMANDS: Final = {
    "version.txt": "version",
    "node.txt": "describe node",
    "runtimes.txt": "get runtimes -o wide",
    "runtimes-described.txt": "describe runtimes",
    "pods.txt": "get pods -A -o wide",
    "volumes.txt": "get volumes -A -o wide",
    "images.txt": "get images -o wide",
    "sessions.txt": "session list -A",
    "events.txt": "get events -A",
    "usage-node.txt": "top node",
    "usage-runtimes.txt": "top runtimes",
    "usage-pods.txt": "top pods -A",
    "plugins.txt": "plugins -o wide",
    "doctor.json": "doctor -o json",
}


@command(short_help="Write a folder about the node for a bug report.")
@click.option(
    "-o",
    "--output-dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder to make, or an empty one.",
)
@click.pass_context
def report(ctx: click.Context, folder: Path) -> int:
    """Write everything about the node that a bug report needs into a folder: state, settings, events, usage, logs.

    Without values of environment variables, passwords and tokens; but log lines are as the containers wrote them. What
    cannot be read is named in its file and in summary.txt. It works without an agent, too.
    """
    if any(folder.glob("*")):
        raise click.UsageError(f"{folder} is not empty; name another folder")
    invocation: Invocation = ctx.obj
    seconds = ANSWER_SECONDS
    try:
        AgentClient(invocation.socket_path, longest_seconds=5 * HUNG_SECONDS).get("/version", VersionView)
    except KubeletxError:
        seconds = HUNG_SECONDS
    ctx.obj = invocation._replace(longest_seconds=seconds)
    agent = AgentClient(invocation.socket_path, longest_seconds=seconds)
    notes = [f"kubeletx report of {now():%Y-%m-%d %H:%M:%S} UTC"]
    with ProgressLine(f"writing {folder}") as line:
        for name, make in _files(ctx, agent, folder):
            line.show(f"writing {folder / name}")
            try:
                text = make()
            except Exception as error:  # noqa: BLE001 - a part that fails must not stop the others
                text = f"failed: {getattr(error, 'message', repr(error))}\n"
                notes.append(f"{name}: {text.rstrip()}")
            _write(folder / name, text)
    _write(folder / "summary.txt", "\n".join([*notes, ""]))
    failed = f"; {len(notes) - 1} failed, see summary.txt" if len(notes) > 1 else ""
    click.echo(f"report written to {folder}{failed}")
    click.echo("Read the logs in it before you hand it on: containers may have written secrets.")
    return ExitCode.OK


def _write(path: Path, text: str) -> None:
    try:
        replace_unflushed(path, masked_text(text).encode(errors="backslashreplace"))
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}; name another folder with -o") from error


def _files(ctx: click.Context, agent: AgentClient, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the path of each file below the folder, and what returns its content or raises why there is none."""
    for name, words in _COMMANDS.items():
        yield name, partial(_printed, ctx, words)
    yield "settings.yaml", lambda: to_yaml(masked(as_document(agent.items("/v1/config", ConfigValue))))
    yield "metrics.txt", partial(_text, agent, "/metrics", {})
    yield "journal.txt", partial(_output, ["journalctl", "-u", "kubeletx", "-n", "2000", "--no-pager"])
    try:
        pods = agent.items("/v1/pods", Pod)
        events = agent.items("/v1/events", Event)
    except KubeletxError:  # pods.txt and events.txt have the error
        pods, events = (), ()
    for pod in map(masked_pod, pods):
        stem = f"pods/{quote(pod.namespace, safe='')}_{quote(pod.name, safe='')}"
        yield f"{stem}.yaml", partial(to_yaml, pod)
        yield f"{stem}.txt", partial(_described, agent, pod, events)
        at = pod.status
        units = (*at.init_container_statuses, *at.container_statuses, *at.ephemeral_container_statuses)
        machine = [("", 0)] * (at.virtual_machine_status is not None)
        for name, restarts in [(unit.name, unit.restart_count) for unit in units] or machine:
            for is_previous in (False, True)[: 1 + (restarts > 0)]:
                file = f"{stem}.{name or 'machine'}{'.previous' * is_previous}.log"
                query: Parameters = {"container": name, "tailLines": _LOG_LINES, "previous": is_previous}
                yield file, partial(_text, agent, pod_path(pod.namespace, pod.name, "log"), query)
    program = find_web()
    if program is not None:
        argv = [str(program), "--socket", str(agent.socket_path.resolve()), "--report", str(folder.resolve())]
        yield "web.txt", partial(_output, argv)


def _printed(ctx: click.Context, words: str) -> str:
    """Return what a command prints, on standard output and error."""
    out, args = StringIO(), words.split()
    found: click.Command | None = ctx.find_root().command
    with redirect_stdout(out), redirect_stderr(out):
        while isinstance(found, click.Group):
            found = found.get_command(ctx, args.pop(0))
        assert found is not None
        with found.make_context(words, args, parent=ctx) as inner:
            found.invoke(inner)
    return out.getvalue()


def _described(agent: AgentClient, pod: Pod, events: Sequence[Event]) -> str:
    return "\n".join([*pod_sheet(agent, pod, events, history=True, timeline=True), ""])


def _text(agent: AgentClient, path: str, parameters: Parameters) -> str:
    return b"".join(agent.chunks(path, parameters)).decode(errors="replace")


def _output(argv: Sequence[str]) -> str:
    result = run_blocking(argv, seconds=_PROGRAM_SECONDS)
    if result.exit_code:
        raise result.problem(argv[0])
    return result.out
