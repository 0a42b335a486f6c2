"""``kubeletx get``: shows pods, runtimes, the node, images, volumes and events as tables, JSON, YAML or names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from kubeletx.api import NotFound

from ..connection.client import AgentClient
from ..options.common import namespace_option, output_option, with_agent
from ..options.completing import complete_kinds
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..output.kinds import OBJECT_PLURALS, ObjectKind, kind_of, kinds_and_names
from ..output.printers import (
    FORMATS,
    Column,
    ObjectTable,
    cells,
    custom_columns,
    is_document,
    print_object,
    shown,
)
from ..output.selectors import Requirement, field_of, parse_field_selector, parse_selector, select
from ..output.words import did_you_mean


class Query(NamedTuple):
    """Selection of the objects of one kind that `get` shows, and the output format."""

    kind: ObjectKind
    names: tuple[str, ...]
    namespace: str | None
    """Only objects of this namespace; None: of all namespaces."""
    selector: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]
    sort_by: str
    """Path of the field to sort by; empty: the order of the agent."""
    output: str | None
    custom: list[Column]
    """Columns of ``-o custom-columns``; empty for other formats."""
    headers: bool
    show_labels: bool
    prefixed: bool = False
    """True to show names as ``pod/web``, since several kinds are listed."""
    event_types: bool = False
    """True to show ADDED, MODIFIED or DELETED in a watch."""

    @property
    def columns(self) -> list[Column]:
        """The columns of the table, without the type of a watch's changes."""
        if self.custom:
            return self.custom
        kind, columns = self.kind, shown(self.kind.columns, wide=self.output == "wide")
        if kind.namespaced and self.namespace is None:
            columns.insert(0, Column("NAMESPACE", lambda item, _: kind.namespace(item)))
        if self.show_labels:
            columns.append(Column("LABELS", lambda item, _: _pairs(kind.labels(item))))
        return columns

    def fetch(self, agent: AgentClient) -> tuple[Sequence[Any], Sequence[str]]:
        """Return all objects of the kind, and the names of the runtimes that did not answer."""
        if self.kind.fetch_brief is None or self.sort_by or is_document(self.output):
            return self.kind.fetch(agent)
        return self.kind.fetch_brief(agent), ()

    def wants(self, item: Any) -> bool:
        """Return True if the object has one of `names`, and matches `namespace`, `fields` and `selector`."""
        kind = self.kind
        if self.names and kind.name(item) not in self.names and not _has_tag(item, self.names):
            return False
        if kind.namespaced and self.namespace is not None and kind.namespace(item) != self.namespace:
            return False
        own = {"metadata.name": kind.name(item), "metadata.namespace": kind.namespace(item)}
        fields = {key: own.get(key) or field_of(item, key) for key, _, _ in self.fields}
        return select(self.selector, kind.labels(item)) and select(self.fields, fields)


@command(short_help="Show pods, runtimes, the node, images, volumes or events.")
@click.argument(
    "kind",
    shell_complete=complete_kinds("pods", "runtimes", "node", "images", "volumes", "events", *OBJECT_PLURALS),
)
@click.argument("names", nargs=-1, shell_complete=complete_kinds())
@output_option(*FORMATS)
@boolean("-w", "--watch", help="Keep running and show changes.")
@boolean("--output-watch-events", help="With --watch: show whether an object was added, modified or deleted.")
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@click.option(
    "-l", "--selector", default="", metavar="SELECTOR", help="Only objects with these labels, such as a=b,!c."
)
@click.option(
    "--field-selector",
    default="",
    metavar="SELECTOR",
    help="Only objects with these fields, such as status.phase=Running.",
)
@click.option("--sort-by", default="", metavar="PATH", help="Sort by a field, such as .metadata.name.")
@click.option("--for", "about", default="", metavar="KIND/NAME", help="Only events about this object.")
@boolean("--no-headers", help="Print no headings.")
@boolean("--show-labels", help="Show labels as the last column.")
@with_agent
def get(
    agent: AgentClient,
    kind: str,
    names: tuple[str, ...],
    output: str | None,
    watch: bool,
    output_watch_events: bool,
    namespace: str,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    sort_by: str,
    about: str,
    no_headers: bool,
    show_labels: bool,
) -> int:
    """Show pods, runtimes, the node, images, volumes or events.

    KIND is one of these words, several joined by commas, or KIND/NAME. With NAMES, show only these objects.
    """
    wanted = kinds_and_names((kind, *names))
    queries = [
        Query(
            kind=wanted_kind,
            names=some,
            namespace=None if all_namespaces else namespace,
            selector=parse_selector(selector),
            fields=(*parse_field_selector(field_selector, wanted_kind.singular), *_about(about)),
            sort_by=sort_by,
            output=output,
            custom=custom_columns(output),
            headers=not no_headers,
            show_labels=show_labels,
            prefixed=len(wanted) > 1,
            event_types=output_watch_events,
        )
        for wanted_kind, some in wanted
    ]
    if not watch:
        if output_watch_events:
            raise click.UsageError("--output-watch-events needs --watch")
        return _show_once(agent, queries)
    if output_watch_events and output not in (None, "wide", "json"):
        raise click.UsageError(
            f"--output-watch-events works with tables and -o json, not with -o {str(output).partition('=')[0]}"
        )
    if sort_by:
        click.echo("Warning: --sort-by is ignored with --watch", err=True)
    if len(queries) > 1:
        raise click.UsageError(f"only one kind can be watched at a time, not {kind!r}")
    return _watch(agent, queries[0])


def _show_once(agent: AgentClient, queries: Sequence[Query]) -> int:
    answers = []
    for query in queries:
        everything, missing = query.fetch(agent)
        items = [item for item in everything if query.wants(item)]
        if query.sort_by and items:
            from ..output.templates import sort_items

            items = sort_items(items, query.sort_by)
        answers.append(_Answer(query, items, missing, _not_found(query, items, everything)))
    if is_document(queries[0].output) and not queries[0].custom:
        _print_documents(answers)
    else:
        _print_texts(answers)
    for query, _, missing, lost in answers:
        if missing:
            click.echo(
                f"Warning: no answer from {', '.join(missing)}; their {query.kind.plural} are not shown",
                err=True,
            )
        for error in lost:
            click.echo(f"Error: {error}", err=True)
    return ExitCode.FAILED if any(answer.lost for answer in answers) else ExitCode.OK


class _Answer(NamedTuple):
    query: Query
    items: Sequence[Any]
    missing: Sequence[str]
    lost: Sequence[NotFound]


def _print_texts(answers: Sequence[_Answer]) -> None:
    is_first = True
    for query, items, _, _ in answers:
        if query.output == "name":
            for item in items:
                click.echo(f"{query.kind.singular}/{query.kind.name(item)}")
        elif items:
            if not is_first:
                click.echo()
            is_first = False
            ObjectTable(query.columns).print(_rows(query, items), headers=query.headers)
    if not any(answer.items or answer.lost for answer in answers):
        query = answers[0].query
        is_bound = all(answer.query.kind.namespaced for answer in answers) and query.namespace is not None
        click.echo(f"No resources found{f' in {query.namespace} namespace' if is_bound else ''}.", err=True)


def _print_documents(answers: Sequence[_Answer]) -> None:
    query = answers[0].query
    items = [item for answer in answers for item in answer.items]
    if len(answers) == 1 and len(query.names) == 1 and len(items) == 1:
        print_object(items[0], str(query.output))
    elif not query.names or items:
        api_version, kind = query.kind.list_header if len(answers) == 1 else ("v1", "List")
        document = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"resourceVersion": ""},
            "items": items,
        }
        print_object(document, str(query.output))


def _not_found(query: Query, items: Sequence[Any], everything: Sequence[Any]) -> list[NotFound]:
    """Return an error for each name of the query that no shown object has.

    The message suggests another namespace that has an object of this name, or a similar name. `items`: the shown
    objects. `everything`: all objects of the kind.
    """
    kind = query.kind
    listed = {kind.name(item) for item in items}
    there = [kind.name(item) for item in everything if query._replace(names=()).wants(item)]
    errors = []
    for name in query.names:
        if name not in listed and not any(_has_tag(item, (name,)) for item in items):
            elsewhere = [
                kind.namespace(item) for item in everything if kind.namespaced and kind.name(item) == name
            ]
            hint = f"; it is in namespace {elsewhere[0]}" if elsewhere else did_you_mean(name, there)
            errors.append(NotFound(f"{kind.singular} {name!r} not found{hint}"))
    return errors


def _rows(query: Query, items: Iterable[Any], *, event_type: str = "") -> list[list[str]]:
    kind = query.kind
    if query.custom:
        return cells(query.columns, items)
    rows = cells(query.columns, (line for item in items for line in kind.lines(item)))
    if query.prefixed and kind.columns[0].title == "NAME":
        name = next(index for index, column in enumerate(query.columns) if column is kind.columns[0])
        for row in rows:
            row[name] = f"{kind.singular}/{row[name]}"
    return [[event_type, *row] for row in rows] if event_type else rows


def _watch(agent: AgentClient, query: Query) -> int:
    output, is_table = query.output, query.custom or not is_document(query.output)
    present: list[Any] = []
    if query.kind.plural == "events" or (is_table and output != "name"):
        present = [item for item in query.fetch(agent)[0] if query.wants(item)]
    table = ObjectTable(["EVENT", *query.columns] if query.event_types else query.columns)
    table.fit(_rows(query, present, event_type="ADDED" if query.event_types else ""))
    headers = query.headers
    # the watch of another kind begins with what is there
    before = (("ADDED", item) for item in present if query.kind.plural == "events")
    for type_, item in itertools.chain(before, query.kind.watch(agent)):
        if not query.wants(item):
            continue
        if output == "name":
            click.echo(f"{query.kind.singular}/{query.kind.name(item)}")
        elif is_table:
            rows = _rows(query, [item], event_type=type_ if query.event_types else "")
            table.print(rows, headers=headers)
            headers = False
        else:
            if output == "yaml":
                click.echo("---")
            print_object({"type": type_, "object": item} if query.event_types else item, str(output))
    click.echo("Error: the agent ended the watch", err=True)
    return ExitCode.FAILED


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _has_tag(item: Any, names: tuple[str, ...]) -> bool:
    """Return True if one of `names` is another name of the object.

    For an image: its id, also as the table shortens it, a tag or a digest. For a volume: its persistent volume.
    """
    from kubeletx.server.admin.image_ids import is_short_id

    image_id = getattr(item, "id", "")
    if any(is_short_id(name, image_id) for name in names):
        return True
    known = {getattr(item, "id", None), *getattr(item, "tags", ()), *getattr(item, "digests", ())}
    known.add(getattr(item, "persistent_volume", None))
    return any(name in known for name in names)


def _about(text: str) -> tuple[Requirement, ...]:
    """Return the fields that events about an object have. `text`: of ``--for``, such as ``pods/web``."""
    if not text:
        return ()
    word, slash, name = text.partition("/")
    if not slash:
        raise click.UsageError(f"--for {text!r} is not KIND/NAME")
    kind = kind_of(word).list_header[1].removesuffix("List")
    wanted = {"involvedObject.kind": kind, "involvedObject.name": name}
    return tuple(Requirement(field, "in", frozenset({value})) for field, value in wanted.items())


def list_command(group: click.Group, plural: str) -> None:
    """Add the subcommand ``list`` to a group: the same as ``kubeletx get PLURAL``."""

    @group.command("list", help=f"The same as 'kubeletx get {plural}'.")
    @output_option(*FORMATS)
    @click.pass_context
    def list_(ctx: click.Context, output: str | None) -> int:
        args = [plural, *(["-o", output] if output else [])]
        with get.make_context("get", args, parent=ctx) as inner:
            return int(get.invoke(inner))
