"""Output formats with a template, such as ``-o jsonpath={.metadata.name}``. Imported only when one of them is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import click

from kubeletx.api import InvalidConfig
from kubeletx.kube.text import quantity
from kubeletx.kube.text.quantity import NANO

from ..connection.client import plain
from .go_values import go_text
from .jsonpath import JsonPath, relaxed

Cell = Callable[[Any, datetime], str]
"""Returns the text of an object, as `printers.Column.cell`."""
_EXAMPLES: Final = {
    "jsonpath": "'{.metadata.name}'",
    "go-template": "'{{.metadata.name}}'",
    "custom-columns": "NAME:.metadata.name",
}


def checked(output: str) -> str:
    """Check ``FORMAT=TEXT`` and return it. Raises InvalidConfig for a template with an error, UsageError without a text."""
    name, _, text = output.partition("=")
    if not text:
        raise click.UsageError(f"-o {name} needs a text, such as {name}={_EXAMPLES[name]}")
    _PARSERS[name](text)
    return output


def render(value: Any, output: str) -> str:
    """Return the text for an object, with its line end. `output`: as `checked` returns it, not custom-columns."""
    name, _, text = output.partition("=")
    return str(_PARSERS[name](text)(plain(value)))


def columns_of(spec: str) -> list[tuple[str, Cell]]:
    """Return the titles and cells of a table's columns as ``NAME:.metadata.name,IMAGE:.spec.containers[*].image`` describes them."""
    columns = []
    for part in spec.split(","):
        title, colon, path = part.partition(":")
        if not colon or not path:
            raise InvalidConfig(
                field="-o custom-columns",
                problem=f"{part!r} is not HEADER:PATH",
                fix="write NAME:.metadata.name",
            )
        columns.append((title, _cell(relaxed(path, option="-o custom-columns"))))
    return columns


def sort_items(items: Iterable[Any], path: str) -> list[Any]:
    """Sort objects by the value at a path such as ``.metadata.name``; objects without it come first.

    Texts that are quantities are compared as such, as in kubectl.
    """
    expression = relaxed(path, option="--sort-by")
    keyed = [(expression.find(plain(item)), item) for item in items]
    if keyed and not any(found for found, _ in keyed):
        raise InvalidConfig(
            field="--sort-by",
            problem=f"no object has the field {path!r}",
            fix="name a field of the JSON output",
        )
    return [item for _, item in sorted(keyed, key=lambda pair: _sort_key(pair[0][0] if pair[0] else None))]


def _sort_key(value: Any) -> tuple[Any, ...]:
    if value is None or isinstance(value, bool | dict | list):
        return (0, go_text(value))
    if isinstance(value, int | float):
        return (1, value * NANO)
    try:
        return (1, quantity.parse(value).nanos)
    except ValueError:
        return (2, value)


def _cell(path: JsonPath) -> Cell:
    def cell(item: Any, _: datetime) -> str:
        return ",".join(map(go_text, path.find(plain(item))))

    return cell


def _go_template(text: str) -> Callable[[Any], str]:
    from .go_template import GoTemplate

    return GoTemplate(text).print


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "jsonpath": lambda text: JsonPath(text).print,
    "go-template": _go_template,
    "custom-columns": columns_of,
}
"""Functions that parse a template. They return the function that prints an object; for columns, the columns."""
