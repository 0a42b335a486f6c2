"""``kubeletx label`` and ``kubeletx annotate``: change labels and annotations of applied pods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import msgspec

from kubeletx.api import KubeletxError

from ...connection.client import AgentClient
from ...options.common import namespace_option, output_option, with_agent
from ...options.completing import complete_kinds
from ...options.exit_codes import ExitCode
from ...options.go_flags import Command, boolean, command
from ...options.group import show
from ...options.selectors import parse_selector, select
from ...output.kinds import kinds_and_names
from ...output.printers import print_object
from .written import Manifest, applied_pod, send_changed


class Words(NamedTuple):
    """Words of one of the two commands. `field`: what it changes in the pod's metadata."""

    verb: str
    thing: str
    field: str
    done: str
    undone: str


LABEL = Words("label", "label", "labels", "labeled", "unlabeled")
ANNOTATE = Words("annotate", "annotation", "annotations", "annotated", "annotated")


class Changes(NamedTuple):
    """Changes of labels or annotations: values to set by key, and keys to remove."""

    values: dict[str, str]
    removed: tuple[str, ...]


def parse_changes(words: tuple[str, ...], thing: str) -> tuple[tuple[str, ...], Changes]:
    """Split the arguments into the names of objects, which come first, and changes: ``key=value`` and ``key-``.

    Raises UsageError.
    """
    first = next((index for index, word in enumerate(words) if _is_change(word)), len(words))
    objects, changes = words[:first], words[first:]
    values = dict(word.split("=", 1) for word in changes if "=" in word)
    removed = tuple(word[:-1] for word in changes if "=" not in word and word.endswith("-"))
    for word in changes:
        if not _is_change(word):
            raise click.UsageError(f"all resources must be specified before {thing} changes: {word}")
    if "" in values or "" in removed:
        raise click.UsageError(f"a {thing} has an empty key")
    if both := set(values) & set(removed):
        raise click.UsageError(f"can not both modify and remove a {thing} in the same command: {min(both)}")
    return objects, Changes(values, removed)


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _make(words: Words) -> Command:
    @command(words.verb, short_help=f"Change {words.field} of applied pods.")
    @click.argument(
        "words",
        nargs=-1,
        required=True,
        metavar="pod NAME... KEY=VALUE KEY-",
        shell_complete=complete_kinds("pods"),
    )
    @boolean("--overwrite", help=f"Change {words.field} that have another value.")
    @boolean("--list", "lists", help=f"Print the {words.field}.")
    @click.option("-l", "--selector", default="", metavar="SELECTOR", help="Pods with these labels.")
    @boolean("--all", "every", help="All pods of the namespace.")
    @boolean("--dry-run", help="Only print what would be done.")
    @namespace_option
    @output_option("json", "yaml", "name")
    @with_agent
    def run(
        agent: AgentClient,
        words: tuple[str, ...],
        selector: str,
        every: bool,
        namespace: str,
        **options: Any,
    ) -> int:
        objects, changes = parse_changes(words, made.thing)
        if not (changes.values or changes.removed or options["lists"]):
            raise click.UsageError(
                f"give at least one {made.thing}, such as KEY=VALUE, or KEY- to remove one"
            )
        if not objects:
            raise click.UsageError(f"name the pods, such as 'kubeletx {made.verb} pod web KEY=VALUE'")
        change = partial(_change, agent, made, changes, namespace, **options)
        return _each(_names(agent, objects, selector, every, namespace, made), change)

    made = words
    run.help = f"Set {words.field} of pods of 'kubeletx apply': KEY=VALUE; or remove them: KEY-."
    return run


def _names(
    agent: AgentClient, objects: tuple[str, ...], selector: str, every: bool, namespace: str, words: Words
) -> list[str]:
    names: list[str] = []
    for kind, some in kinds_and_names(objects):
        if kind.singular != "pod":
            hint = "; use the agent's --node-labels, or kubectl" if kind.singular == "node" else ""
            raise click.UsageError(f"{kind.plural} cannot be {words.done} here, only pods{hint}")
        if bool(some) == bool(selector or every):
            raise click.UsageError("name the pods, or give --selector or --all")
        names += some
        if not some:
            wanted = parse_selector(selector)
            pods = [item for item in kind.fetch(agent)[0] if kind.namespace(item) == namespace]
            names += [kind.name(item) for item in pods if select(wanted, kind.labels(item))]
    return names


def _each(names: list[str], change: Callable[[str], None]) -> int:
    failed = False
    for name in names:
        try:
            change(name)
        except KubeletxError as error:
            failed = bool(show(error)) or failed
    if not names:
        click.echo("No resources found", err=True)
    return ExitCode.FAILED if failed else ExitCode.OK


def _change(
    agent: AgentClient,
    words: Words,
    changes: Changes,
    namespace: str,
    name: str,
    *,
    overwrite: bool,
    lists: bool,
    dry_run: bool,
    output: str | None,
) -> None:
    pod = applied_pod(agent, words.verb, namespace, name)
    before: dict[str, str] = dict(pod["metadata"].get(words.field, {}))
    taken = {key for key, value in changes.values.items() if before.get(key, value) != value}
    if taken and not overwrite:
        key = min(taken)
        raise click.UsageError(f"'{key}' already has a value ({before[key]}), and --overwrite is false")
    for key in changes.removed:
        if key not in before:
            click.echo(f'{words.thing} "{key}" not found.')
    after = {k: v for k, v in {**before, **changes.values}.items() if k not in changes.removed}
    pod["metadata"][words.field] = after
    if after != before:
        send_changed(agent, msgspec.json.encode(pod), dry_run=dry_run)
    if lists:
        for key, value in sorted(after.items()):
            click.echo(f"{key}={value}")
    elif output in ("json", "yaml"):
        print_object(pod, output)
    else:
        _say(name, words, before, after, terse=output == "name", dry_run=dry_run)


def _say(name: str, words: Words, before: Manifest, after: Manifest, *, terse: bool, dry_run: bool) -> None:
    word = words.done if set(after.items()) - set(before.items()) else words.undone
    if after == before:
        word = f"not {words.done}"
    click.echo(f"pod/{name}" if terse else f"pod/{name} {word}{' (dry run)' if dry_run else ''}")


label = _make(LABEL)
annotate = _make(ANNOTATE)
