"""Formats descriptions as ``kubectl describe`` does: nested ``Key:  value`` lines, with the values aligned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..output.printers import NONE

Value = "str | Sequence[str] | Sheet"


class Sheet:
    """Keys and values of a description, in order. A value is text, several lines, or another sheet below its key.

    The methods that add a value return the sheet, so that calls can be chained.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[str, list[str] | Sheet]] = []

    def add(self, key: str, value: str | Iterable[str] | None) -> Sheet:
        """Add a key with its value: one text, or several lines. An empty value or None is shown as ``<none>``."""
        lines = [value] if isinstance(value, str) else list(value or ())
        self._rows.append((key, [line for line in lines if line] or [NONE]))
        return self

    def add_if(self, key: str, value: str | Sequence[str] | None) -> Sheet:
        """Add the key with its value; does nothing if the value is empty or None."""
        return self.add(key, value) if value else self

    def add_map(self, key: str, values: Mapping[str, str], separator: str = "=") -> Sheet:
        """Add a key with the pairs of a map as its value: sorted, one on each line, such as ``a=b``."""
        return self.add(key, [f"{name}{separator}{text}" for name, text in sorted(values.items())])

    def nest(self, key: str) -> Sheet:
        """Add a key with an empty sheet as its value, and return that inner sheet."""
        inner = Sheet()
        self._rows.append((key, inner))
        return inner

    def table(self, key: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Sheet:
        """Add a table, with a line of titles, below the key; without rows the value is ``<none>``."""
        if not rows:
            return self.add(key, None)
        cells = [
            list(titles),
            ["-" * len(title) for title in titles],
            *[[c or "" for c in row] for row in rows],
        ]
        widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
        inner = Sheet()
        for line in cells:
            inner._rows.append(
                ("", ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()])
            )
        self._rows.append((key, inner))
        return self

    def lines(self, indent: int = 0) -> list[str]:
        """Return the lines of the sheet, each after `indent` spaces."""
        plain = [len(key) for key, value in self._rows if key and isinstance(value, list)]
        column = max(plain, default=0) + 3
        lines: list[str] = []
        front = " " * indent
        for key, value in self._rows:
            if isinstance(value, Sheet):
                lines += [f"{front}{key}:", *value.lines(indent + 2)]
            elif not key:
                lines += [front + line for line in value]
            else:
                lines.append(front + f"{key}:".ljust(column) + value[0])
                lines += [front + " " * column + line for line in value[1:]]
        return lines
