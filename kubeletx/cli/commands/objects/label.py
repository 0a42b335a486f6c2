"""``kubeletx label`` and ``kubeletx annotate``: change labels and annotations of applied pods."""

from __future__ import annotations

import click
import msgspec

from kubeletx.api import KubeletxError

from ...connection.client import AgentClient
from ...options.common import in_namespace
from ...options.completing import complete_kinds
from ...options.exit_codes import ExitCode
from ...options.go_flags import Command, boolean, command
from ...options.group import show
from ...output.kinds import kinds_and_names
from .written import applied_pod, send_changed


def parse_changes(words: tuple[str, ...], thing: str) -> tuple[tuple[str, ...], dict[str, str | None]]:
    """Split the arguments into the names of objects, which come first, and changes: ``key=value`` and ``key-``.

    A changed value of None removes the key. Raises UsageError.
    """
    first = next((index for index, word in enumerate(words) if "=" in word or word.endswith("-")), len(words))
    changes: dict[str, str | None] = {}
    for word in words[first:]:
        key, equals, value = word.partition("=")
        if not equals and not word.endswith("-"):
            raise click.UsageError(f"all resources must be specified before {thing} changes: {word}")
        key = key if equals else key[:-1]
        if not key:
            raise click.UsageError(f"a {thing} has an empty key")
        if key in changes and (changes[key] is None) is bool(equals):
            raise click.UsageError(f"can not both modify and remove a {thing} in the same command: {key}")
        changes[key] = value if equals else None
    return words[:first], changes


def _make(verb: str, thing: str, done: str, undone: str) -> Command:
    """Return the command `verb`, which changes the pods' labels or annotations; `thing`: one of these."""

    @command(verb, short_help=f"Change {thing}s of applied pods.")
    @click.argument(
        "words",
        nargs=-1,
        required=True,
        metavar="pod NAME... KEY=VALUE KEY-",
        shell_complete=complete_kinds("pods"),
    )
    @boolean("--overwrite", help=f"Change {thing}s that have another value.")
    @click.option("-l", "--selector", default="", metavar="SELECTOR", help="Pods with these labels.")
    @boolean("--all", "every", help="All pods of the namespace.")
    @boolean("--dry-run", help="Only print what would be done.")
    @in_namespace
    def run(
        agent: AgentClient,
        words: tuple[str, ...],
        overwrite: bool,
        selector: str,
        every: bool,
        dry_run: bool,
        namespace: str,
    ) -> int:
        objects, changes = parse_changes(words, thing)
        if not changes:
            raise click.UsageError(f"give at least one {thing}, such as KEY=VALUE, or KEY- to remove one")
        if not objects:
            raise click.UsageError(f"name the pods, such as 'kubeletx {verb} pod web KEY=VALUE'")
        kinds = kinds_and_names(objects)
        if kind := next((kind for kind, _ in kinds if kind.singular != "pod"), None):
            hint = "; use the agent's --node-labels, or kubectl" if kind.singular == "node" else ""
            raise click.UsageError(f"{kind.plural} cannot be {done} here, only pods{hint}")
        pods, named = kinds[0]
        if bool(named) == bool(selector or every):
            raise click.UsageError("name the pods, or give --selector or --all")
        names = named or [pod.name for pod in pods.selected(agent, selector, namespace)]
        if not names:
            click.echo("No resources found", err=True)
        failed = False
        for name in names:
            try:
                change(agent, namespace, name, changes, overwrite, dry_run)
            except KubeletxError as error:
                failed = bool(show(error))
        return ExitCode.FAILED if failed else ExitCode.OK

    def change(
        agent: AgentClient,
        namespace: str,
        name: str,
        changes: dict[str, str | None],
        overwrite: bool,
        dry_run: bool,
    ) -> None:
        pod = applied_pod(agent, verb, namespace, name)
        before: dict[str, str] = pod["metadata"].get(f"{thing}s", {})
        for key, value in changes.items():
            if value is None and key not in before:
                click.echo(f'{thing} "{key}" not found.')
            if value is not None and not overwrite and before.get(key, value) != value:
                raise click.UsageError(
                    f"'{key}' already has a value ({before[key]}), and --overwrite is false"
                )
        after = {key: value for key, value in {**before, **changes}.items() if value is not None}
        word = done if set(after.items()) - set(before.items()) else undone
        if after == before:
            word = f"not {done}"
        else:
            pod["metadata"][f"{thing}s"] = after
            send_changed(agent, msgspec.json.encode(pod), dry_run=dry_run)
        click.echo(f"pod/{name} {word}{' (dry run)' if dry_run else ''}")

    run.help = f"Set {thing}s of pods of 'kubeletx apply': KEY=VALUE; or remove them: KEY-."
    return run


label = _make("label", "label", "labeled", "unlabeled")
annotate = _make("annotate", "annotation", "annotated", "annotated")
