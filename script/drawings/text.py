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
    """A Mermaid state diagram; causes with the same ends share an arrow. `final`: states that nothing leaves."""
    causes: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        if edge.before != edge.after:
            found = causes.setdefault((edge.before, edge.after), [])
            if edge.cause not in found:
                found.append(edge.cause)
    lines = [f"[*] --> {first}"]
    lines += [f"{before} --> {after}: {', or '.join(found)}" for (before, after), found in causes.items()]
    lines += [f"{state} --> [*]" for state in final]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty cells stay empty."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def yes(value: bool) -> str:
    """A cell that is ``yes`` or empty."""
    return "yes" if value else ""
