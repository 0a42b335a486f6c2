from __future__ import annotations

from script.drawings.text import Edge, drawing, table


def test_causes_with_the_same_ends_share_an_arrow_and_loops_are_left_out() -> None:
    edges = [Edge("A", "one", "B"), Edge("A", "two", "B"), Edge("A", "one", "B"), Edge("B", "three", "B")]
    assert drawing("A", edges, ["B"]).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> A",
        "    A --> B: one, or two",
        "    B --> [*]",
        "```",
    ]


def test_a_table_has_a_row_for_each() -> None:
    assert table(["a", "b"], [["1", ""]]) == "| a | b |\n| --- | --- |\n| 1 | |"
