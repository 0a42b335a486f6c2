"""Markdown: tables and Mermaid drawings of states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """One change of state and what causes it."""

    before: str
    cause: str
    after: str


def drawing(first: str, edges: Iterable[Edge], final: Iterable[str] = ()) -> str:
    """Format a Mermaid state diagram. Causes of changes between the same states share an arrow.

    `first`: the state at the beginning. `final`: states that are never left.
    """
    causes: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        if edge.before != edge.after:
            between = causes.setdefault((edge.before, edge.after), [])
            if edge.cause not in between:
                between.append(edge.cause)
    lines = [f"[*] --> {first}"]
    lines += [f"{before} --> {after}: {', or '.join(between)}" for (before, after), between in causes.items()]
    lines += [f"{state} --> [*]" for state in final]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def yes(value: bool) -> str:
    """Text of a table cell: ``yes`` for True, empty for False."""
    return "yes" if value else ""
