"""Prints the check for people: what is found as it is found, and a list of marks at the end."""

from __future__ import annotations

import enum
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

import click

from .results import TestResult


class Mark(enum.StrEnum):
    """Mark before each line of the result."""

    PASSED = "✓"
    FAILED = "✗"
    NOT_APPLICABLE = "–"  # noqa: RUF001 (a dash as in printed tables)


MARKS = {"passed": Mark.PASSED, "failed": Mark.FAILED, "skipped": Mark.NOT_APPLICABLE}


class Report:
    """Collects the lines of the list at the end. `has_failed`: True once something has failed."""

    def __init__(self) -> None:
        """Make standard output able to print the marks in every locale."""
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        self.has_failed = False
        self._lines: list[str] = []

    def show(self, text: str = "", indent: int = 0) -> None:
        """Print lines now."""
        click.echo(textwrap.indent(text, " " * indent))

    def note(self, mark: Mark, text: str, indent: int = 2) -> None:
        """Add one line to the list at the end."""
        self.has_failed |= mark is Mark.FAILED
        self._lines.append(f"{' ' * indent}{mark} {text}")

    def test(self, result: TestResult) -> None:
        """Print the result of one test now, with the explanation if it failed."""
        if result.is_not_run:
            return  # the list at the end has their number
        mark = MARKS[result.outcome]
        if result.outcome == "skipped":
            self.show(f"{mark} {result.title}: {result.sentence}", 2)
            return
        self.show(f"{mark} {result.title}", 2)
        if result.outcome == "failed":
            lines = result.text.splitlines()
            self.show("\n".join(lines[1:] if lines[:1] == [result.title] else lines), 4)

    def suite(self, name: str, results: Sequence[TestResult]) -> None:
        """Add the results of one contract suite to the list at the end."""
        count = Counter(result.outcome for result in results)
        failed = [result for result in results if result.outcome == "failed"]
        parts = [f"{count[word]} {word}" for word in ("passed", "failed") if count[word]]
        not_run = sum(result.is_not_run for result in results)
        parts += [f"{count['skipped'] - not_run} not applicable"] if count["skipped"] > not_run else []
        parts += [f"{not_run} not run"] if not_run else []
        self.note(Mark.FAILED if failed else Mark.PASSED, f"{name}: {', '.join(parts)}")
        for result in failed:
            self.note(Mark.FAILED, f"{result.subject}: {result.sentence}", 6)
        reasons = Counter(result.sentence for result in results if result.outcome == "skipped")
        for reason, number in reasons.items():
            self.note(Mark.NOT_APPLICABLE, f"{number} {'test' if number == 1 else 'tests'}: {reason}", 6)

    def end(self) -> None:
        """Print the list."""
        self.show("\nResult")
        for line in self._lines:
            self.show(line)
