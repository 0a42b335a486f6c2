"""Reading the documentation: blocks of code, tables, links."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


def named_blocks(page: str) -> dict[str, list[str]]:
    """Blocks that stand below a comment ``<!-- NAME -->``, by name, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in re.findall(r"<!-- (\S+) -->\n```\w*\n(.*?)```", page, re.DOTALL):
        found[name].append(text)
    return found


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {title!r}"
    return re.sub(r"```.*?```", "", match[1], flags=re.DOTALL)


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without heads and rules; backquotes stay."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [
        row
        for row, below in zip(cells, [*cells[1:], [""]], strict=True)
        if not (is_rule(row) or is_rule(below))
    ]


def is_rule(row: list[str]) -> bool:
    """Whether it is the line between head and body."""
    return all(set(cell) <= set("-:") and cell for cell in row)


def words(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def first_words(text: str) -> list[str]:
    """Every backquoted word of the first column of the tables."""
    return [word for row in rows(text) for word in words(row[0])]
