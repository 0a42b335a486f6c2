"""Shell completion of kinds, object names and container names. Names are empty while no agent answers.

Only the modules of subcommands import it, so that completion of the first word stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kubeletx.api import KubeletxError

from ..connection.client import AgentClient
from ..connection.pods import BriefPod
from .common import DEFAULT_NAMESPACE
from .settings import find_socket

Completer = Callable[[click.Context, click.Parameter, str], list[str]]
F = TypeVar("F", bound=Callable[..., Any])


def complete_pods(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of pods that begin with `incomplete`. If it begins with ``pod/``, the names do too."""
    kind, slash, _name = incomplete.rpartition("/")
    return _starting([f"{kind}{slash}{pod.name}" for pod in _pods(ctx)], incomplete)


def complete_containers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the container names that begin with `incomplete`, of the pod that the command line names.

    If it does not name a pod yet, returns the names for all pods in the namespace.
    """
    name = str(ctx.params.get("pod") or "").rpartition("/")[2]
    pods = [pod for pod in _pods(ctx) if not name or pod.name == name]
    containers = {c.name for pod in pods for c in (*pod.spec.init_containers, *pod.spec.containers)}
    return _starting(sorted(containers), incomplete)


def container_option(parameter: str = "container") -> Callable[[F], F]:
    """Return a decorator that adds ``-c`` (``--container``) to a command."""
    return click.option(
        "-c",
        "--container",
        parameter,
        default="",
        metavar="NAME",
        shell_complete=complete_containers,
        help="Container; the first one by default.",
    )


def complete_runtimes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of runtimes that begin with `incomplete`."""
    return _starting(_names(ctx, "runtimes"), incomplete)


def complete_sessions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of sessions that begin with `incomplete`."""
    from kubeletx.server.session_views import SessionList

    try:
        sessions = _agent(ctx).get("/v1/sessions", SessionList).items
    except KubeletxError:
        return []
    return _starting(
        [session.name for session in sessions if session.namespace == _namespace(ctx)], incomplete
    )


def complete_kinds(*plurals: str) -> Completer:
    """Return a completion function for arguments such as ``pods web`` and ``pod/web``.

    It completes the kinds `plurals` and, after a kind, the names of its objects. `plurals` empty: only names.
    """

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before = _words(ctx.params.get("kind") if parameter.name != "kind" else None)
        before += _words(ctx.params.get("words"))
        kind, slash, _name = incomplete.partition("/")
        if slash:
            return _starting([f"{kind}/{name}" for name in _names(ctx, kind)], incomplete)
        return _starting(_names(ctx, before[0]) if before else list(plurals), incomplete)

    return complete


def _words(value: Any) -> list[str]:
    if not value:
        return []
    return [value] if isinstance(value, str) else list(value)


def _starting(words: list[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _names(ctx: click.Context, word: str) -> list[str]:
    from ..output.kinds import kind_of

    try:
        kind = kind_of(word)
        items = kind.fetch_brief(_agent(ctx)) if kind.fetch_brief else kind.fetch(_agent(ctx))[0]
    except (click.UsageError, KubeletxError):
        return []
    everywhere = not kind.namespaced or ctx.params.get("all_namespaces")
    return [kind.name(item) for item in items if everywhere or kind.namespace(item) == _namespace(ctx)]


def _pods(ctx: click.Context) -> list[BriefPod]:
    try:
        pods = _agent(ctx).items("/v1/pods", BriefPod)
    except KubeletxError:
        return []
    return [pod for pod in pods if pod.namespace == _namespace(ctx)]


def _agent(ctx: click.Context) -> AgentClient:
    given: Path | None = ctx.params.get("own_root_dir") or ctx.find_root().params.get("root_dir")
    return AgentClient(find_socket(given, as_kubelet=bool(ctx.find_root().params.get("as_kubelet"))))


def _namespace(ctx: click.Context) -> str:
    return str(ctx.params.get("namespace") or DEFAULT_NAMESPACE)
