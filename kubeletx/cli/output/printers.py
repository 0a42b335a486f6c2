"""Tables and the other output formats: ``-o wide|json|yaml|name``.

An `ObjectTable` has columns and rows of text. Columns marked wide are shown only with ``-o wide``. Each column is as
wide as its longest cell, with three spaces between columns, as in kubectl. During a watch, columns may become wider but
never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

NONE = "<none>"
FORMATS = ("wide", "json", "yaml", "name")


class Column(NamedTuple):
    """Column of a table. `wide`: shown only with ``-o wide``."""

    title: str
    wide: bool = False


class ObjectTable:
    """Formats rows as a table with aligned columns. Each call of `render` keeps or widens the earlier columns."""

    def __init__(self, columns: Sequence[Column], *, wide: bool = False) -> None:
        """`wide`: also show the columns that are marked wide."""
        self._shown = [index for index, column in enumerate(columns) if wide or not column.wide]
        self._titles = [columns[index].title for index in self._shown]
        self._widths = [len(title) for title in self._titles]

    def render(self, rows: Iterable[Sequence[str]], *, headers: bool = True) -> list[str]:
        """Return the rows as lines with aligned columns. `headers`: the first line has the titles.

        `rows`: a cell for every column, including those that are not shown; an empty cell is shown as ``<none>``.
        """
        cells = self.fit(rows)
        lines = [self._titles, *cells] if headers else cells
        return [
            "   ".join(c.ljust(w) for c, w in zip(line, self._widths, strict=True)).rstrip() for line in lines
        ]

    def fit(self, rows: Iterable[Sequence[str]]) -> list[list[str]]:
        """Make the columns wide enough for `rows`, and return their shown cells."""
        cells = [[row[index] or NONE for index in self._shown] for row in rows]
        for row in cells:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        return cells


def to_json(value: Any) -> str:
    """Format any value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=4).decode()


def to_yaml(value: Any) -> str:
    """Format any value as YAML with sorted keys, as kubectl prints it."""
    import yaml

    plain = msgspec.json.decode(msgspec.json.encode(value))
    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("BlockDumper", (base,), {})
    dumper.add_representer(str, _represent_text)
    text: str = yaml.dump(plain, Dumper=dumper, default_flow_style=False, sort_keys=True, allow_unicode=True)
    return text.rstrip("\n")


def _represent_text(dumper: Any, text: str) -> Any:
    """Represent a text for the YAML dumper; one of several lines as a block, as in kubectl."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def print_object(value: Any, output: str) -> None:
    """Print one object as JSON or YAML. `output`: json or yaml."""
    click.echo(to_json(value) if output == "json" else to_yaml(value))


def print_list(
    found: Any, output: str | None, kind: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Print a list. `output` None: as a table; name: as lines ``KIND/NAME``; json or yaml: the object `found`.

    `kind`: singular name of the kind. `rows`: the cells of the table; the first cell of each is the name.
    """
    if output == "name":
        lines = [f"{kind}/{row[0]}" for row in rows]
    elif output is not None:
        print_object(found, output)
        return
    elif not rows:
        click.echo(f"No {kind}s found.", err=True)
        return
    else:
        lines = ObjectTable(columns).render(rows)
    for line in lines:
        click.echo(line)


def human_bytes(size: int | None) -> str:
    """Format a number of bytes in decimal units, as crictl does, such as ``1.5GB``; ``<unknown>`` for None."""
    if size is None:
        return "<unknown>"
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}TB"


def mebibytes(size: int | None) -> str:
    """Format a number of bytes as ``128Mi``, as ``kubectl top`` shows memory; ``<unknown>`` for None."""
    return "<unknown>" if size is None else f"{size // (1024 * 1024)}Mi"


def millicores(amount: int | None) -> str:
    """Format an amount of CPU as ``250m``, as ``kubectl top`` does; ``<unknown>`` for None."""
    return "<unknown>" if amount is None else f"{amount}m"
