"""Tables and the other output formats, ``-o wide|json|yaml|name``, and pictures.

An `ObjectTable` has titles and rows of text. Each column is as wide as its longest cell, with three spaces between
columns, as in kubectl. During a watch, columns may become wider but never narrower.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import click
import msgspec

from ..connection.client import plain
from .screen import WIDE_COLUMNS, colored, screen
from .words import now

NONE = "<none>"
_LEAST_LONG = 20
"""Width that a long text keeps when other columns are left out for it."""
FORMATS = ("wide", "json", "yaml", "name")


class Column(NamedTuple):
    """Column of a table of objects.

    `cell`: returns an object's text at a present time; an empty text is shown as ``<none>``. `wide`: the column is shown
    only with ``-o wide``. `priority`: columns with the highest are left out first on a narrow terminal, 0: never.
    `state`: its texts are states, which have colours. `long`: its texts are cut where the terminal ends, except with
    ``-o wide``.
    """

    title: str
    cell: Callable[[Any, datetime], str]
    wide: bool = False
    priority: int = 0
    state: bool = False
    long: bool = False


def shown(columns: Iterable[Column], *, wide: bool = False) -> list[Column]:
    """Return the columns to show. `wide`: all of them."""
    return [column for column in columns if wide or not column.wide]


def cells(columns: Sequence[Column], items: Iterable[Any]) -> list[list[str]]:
    """Return a row for each object: its text in each of the columns at the present time."""
    moment = now()
    return [[column.cell(item, moment) for column in columns] for item in items]


class ObjectTable:
    """Formats rows as a table with aligned columns. Each call of `render` keeps or widens the earlier columns."""

    def __init__(self, columns: Sequence[str | Column]) -> None:
        """`columns`: a title stands for a column that is never left out and has no states."""
        self._columns = [
            Column(column, lambda *_: "") if isinstance(column, str) else column for column in columns
        ]
        self._titles = [column.title for column in self._columns]
        self._widths = [len(title) for title in self._titles]
        self._screen = screen()
        self._is_wide = any(column.wide for column in self._columns)
        self._kept: list[int] | None = None

    def print(self, rows: Iterable[Sequence[str]], *, headers: bool = True) -> None:
        """Print the lines that `render` returns."""
        for line in self.render(rows, headers=headers):
            click.echo(line, color=self._screen.colored or None)

    def render(self, rows: Iterable[Sequence[str]], *, headers: bool = True) -> list[str]:
        """Return the rows as lines with aligned columns; an empty cell is shown as ``<none>``.

        `headers`: the first line has the titles. On a terminal, columns that do not fit are left out.
        """
        filled = self.fit(rows)
        if self._kept is None:
            self._kept = self._fitting()
        widths = self._limited(self._kept)
        lines = [self._line(self._titles, widths, is_title=True)] if headers else []
        return lines + [self._line(row, widths) for row in filled]

    def _line(self, row: Sequence[str], widths: dict[int, int], *, is_title: bool = False) -> str:
        texts = []
        for i, width in widths.items():
            text = row[i] if len(row[i]) <= width else f"{row[i][: width - 3]}..."
            is_colored = self._screen.colored and self._columns[i].state and not is_title
            texts.append(colored(text, text.ljust(width)) if is_colored else text.ljust(width))
        return "   ".join(texts).rstrip()

    def _limited(self, kept: list[int]) -> dict[int, int]:
        """Return the widths of the columns that are shown; long texts have at most what the other columns leave."""
        widths = {i: self._widths[i] for i in kept}
        for i in kept:
            if self._screen.width is not None and self._columns[i].long and not self._is_wide:
                others = sum(width + 3 for other, width in widths.items() if other != i)
                widths[i] = min(widths[i], max(self._screen.width - others, len(self._titles[i])))
        return widths

    def _fitting(self) -> list[int]:
        """Return the indices of the columns that fit, in order; those with a high priority are left out first."""
        kept = list(range(len(self._columns)))
        width = self._screen.width
        if width is not None and self._is_wide:
            width = max(width, WIDE_COLUMNS)
        least = [
            min(each, _LEAST_LONG) if column.long and not self._is_wide else each
            for each, column in zip(self._widths, self._columns, strict=True)
        ]
        while width is not None and sum(least[i] + 3 for i in kept) - 3 > width:
            last = max(kept, key=lambda i: (self._columns[i].priority, i))
            if not self._columns[last].priority:
                break
            kept.remove(last)
        return kept

    def fit(self, rows: Iterable[Sequence[str]]) -> list[list[str]]:
        """Make the columns wide enough for `rows`, and return their cells."""
        filled = [[cell or NONE for cell in row] for row in rows]
        for row in filled:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        return filled


def print_table(columns: Sequence[Column], items: Iterable[Any]) -> None:
    """Print a table of all these columns, with a line for each object."""
    ObjectTable(columns).print(cells(columns, items))


def to_json(value: Any) -> str:
    """Format any value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=4).decode()


def to_yaml(value: Any) -> str:
    """Format any value as YAML with sorted keys, as kubectl prints it."""
    import yaml

    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("BlockDumper", (base,), {})
    dumper.add_representer(str, _represent_text)
    text: str = yaml.dump(
        plain(value), Dumper=dumper, default_flow_style=False, sort_keys=True, allow_unicode=True
    )
    return text.rstrip("\n")


def _represent_text(dumper: Any, text: str) -> Any:
    """Represent a text for the YAML dumper; one of several lines as a block, as in kubectl."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def is_document(output: str | None) -> TypeGuard[str]:
    """Return True for an output format of `print_object`, and False for tables and names."""
    return output not in (None, "wide", "name")


def print_object(value: Any, output: str) -> None:
    """Print one object. `output`: json, yaml, or a template, as `OutputFormat` returns it."""
    if "=" not in output:
        click.echo(to_json(value) if output == "json" else to_yaml(value))
    elif columns := custom_columns(output):
        items = value.get("items") if isinstance(value, dict) else getattr(value, "items", None)
        print_table(columns, [value] if items is None else items)
    else:
        from .templates import render

        click.echo(render(value, output), nl=False)


def custom_columns(output: str | None) -> list[Column]:
    """Return the columns of ``custom-columns=SPEC``; none for another output format."""
    name, _, spec = (output or "").partition("=")
    if name != "custom-columns":
        return []
    from .templates import columns_of

    return [Column(title, cell) for title, cell in columns_of(spec)]


def print_list(
    items: Sequence[Any], output: str | None, kind: str, columns: Sequence[Column], document: Any = None
) -> None:
    """Print objects that have a `name`: as a table, for ``name`` as lines ``KIND/NAME``, else as a document.

    `kind`: singular name of the kind. `columns`: of the table; those for ``wide`` are left out without it. `document`:
    printed for json and yaml; None: an object with the `items`.
    """
    if output == "name":
        for item in items:
            click.echo(f"{kind}/{item.name}")
    elif is_document(output):
        print_object({"items": items} if document is None else document, output)
    elif not items:
        click.echo(f"No {kind}s found.", err=True)
    else:
        print_table(shown(columns, wide=output == "wide"), items)


def write_picture(data: bytes, target: Path, what: str, *, force: bool) -> None:
    """Write a picture to the file `target`, or to standard output for ``-``. `force`: overwrite an existing file.

    `what`: object that the picture shows, for the message, such as vm/web. Raises UsageError if it cannot be written.
    """
    if str(target) == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        with target.open("wb" if force else "xb") as out:
            out.write(data)
    except FileExistsError as err:
        raise click.UsageError(f"{target} exists; give --force or another --file") from err
    except OSError as err:
        raise click.UsageError(f"cannot write {target}: {err.strerror}") from err
    click.echo(f"{what} written to {target}")
