"""``kubeletx diff``: shows what ``apply`` of a file would change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import click

from kubeletx.api import KubeletxError
from kubeletx.kube.manifests.objects import CHANGED_VALUE
from kubeletx.server.status import to_error
from kubeletx.server.views import ApplyReport, ApplyResult

from ...connection.client import AgentClient, Parameters
from ...options.common import with_agent
from ...options.exit_codes import ExitCode
from ...options.go_flags import command
from ...options.group import show
from ...options.manifests import ManifestText, files_option, read_manifests
from ...output.kinds import kind_of
from ...output.printers import to_yaml
from .written import Manifest, written


@command(short_help="Show what apply of a file would change.")
@files_option
@with_agent
def diff(agent: AgentClient, files: tuple[str, ...]) -> int:
    """Show what 'kubeletx apply' of a file would change on the node.

    Exit code 0: nothing; 1: something; 2: an error.
    """
    differs = False
    try:
        for manifest in read_manifests(files):
            for result in _results(agent, manifest):
                for line in _differences(agent, result):
                    click.echo(line)
                    differs = True
    except KubeletxError as error:
        show(error)
        return ExitCode.USAGE
    return ExitCode.FAILED if differs else ExitCode.OK


def _results(agent: AgentClient, manifest: ManifestText) -> Iterator[ApplyResult]:
    """Yield what applying the manifest would lead to. Raises the agent's error.

    Changes that need 'replace --force' are shown like all others.
    """
    query: Parameters = {"origin": manifest.origin, "fieldValidation": "Warn", "dryRun": True}
    plain = agent.call("POST", "/v1/pods", ApplyReport, query, manifest.data).items
    forced = plain
    if any(result.error for result in plain):
        forced = agent.call(
            "POST", "/v1/pods", ApplyReport, {**query, "replace": True, "force": True}, manifest.data
        ).items
    for result, other in zip(plain, forced, strict=True):
        for warning in result.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if result.error is not None and other.error is not None:
            raise to_error(result.error)
        yield other if result.error is not None else result


def _differences(agent: AgentClient, result: ApplyResult) -> Iterator[str]:
    """Yield the lines of a unified diff between the live object and the result; none if they are equal."""
    after = written(result.object or result.pod)
    kind, metadata = after["kind"], after["metadata"]
    namespace, name = metadata.get("namespace", "default"), metadata["name"]
    before = _live(agent, kind, namespace, name) or {}
    if kind == "Secret":
        _mask(before.get("data", {}), after.get("data", {}))
    label = f"{after['apiVersion'].replace('/', '.')}.{kind}.{namespace}.{name}"
    yield from difflib.unified_diff(
        to_yaml(before).split("\n") if before else [],
        to_yaml(after).split("\n"),
        f"live/{label}",
        f"merged/{label}",
        lineterm="",
    )


def _mask(before: Manifest, after: Manifest) -> None:
    """Hide the values of a secret as kubectl does. In `after`, the agent has replaced changed values by `CHANGED_VALUE`."""
    for key in before.keys() | after.keys():
        is_changed = after.get(key) == CHANGED_VALUE
        if key in before:
            before[key] = "*** (before)" if is_changed else "***"
        if key in after and not is_changed:
            after[key] = "***"


def _live(agent: AgentClient, kind: str, namespace: str, name: str) -> Manifest | None:
    listed = kind_of(kind)
    items = listed.selected(agent, "", namespace)
    return next((written(item) for item in items if listed.name(item) == name), None)
