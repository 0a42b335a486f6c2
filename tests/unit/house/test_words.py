"""Docstrings are plain English: present tense, subject first, the field's words (see the style guide's examples).

The lists hold the turns of phrase that a first reading most often misses. A docstring that needs one of these words for
another reason says the same in other words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.unit.house.sources import nodes, of_tests, place, with_scripts

FIRST = re.compile(
    r"(Of|What|Whether|How|Why|Where|Whom|Whose|Those|That|By|So|As|For|Who|When|Which|Its|Their|Such|Nothing|Nobody"
    r"|None|There|It|They|Not|While)\b"
)
"""First words of a docstring that neither name the thing nor say what it does."""
TURNS = re.compile(
    r"\b(nobody|somebody|anybody|whom|whoever|anew|in vain|lest|thereof|henceforth|puts up with|becomes of|last words"
    r"|wishes|wished|hears|stands? (in|on|beside|below|before|there))\b",
    re.IGNORECASE,
)
TURNS_OF_TESTS = re.compile(
    r"\b((?<!as )(?<!user )nobody|somebody|anybody|whom|whoever|anew|in vain|lest|thereof|henceforth"
    r"|(?<!there )(is|are) no (?!(better|larger|less|longer|more|other|sooner|such|worse)\b)[a-z]+)\b",
    re.IGNORECASE,
)
"""Expressions that are not allowed in names and docstrings of tests. ``nobody`` is allowed as the name of the user."""


@cache
def docstrings() -> tuple[tuple[str, str, bool], ...]:
    """Place and text of every docstring, and whether it is of a class."""
    return tuple(_docstrings())


def _docstrings() -> Iterator[tuple[str, str, bool]]:
    for path in with_scripts():
        for node in nodes(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield place(path, getattr(node, "lineno", 1)), text, isinstance(node, ast.ClassDef)


def test_docstrings_are_plain() -> None:
    found = [f"{where}: {text.splitlines()[0]}" for where, text, _ in docstrings() if FIRST.match(text)]
    found += [f"{where}: {turn.group()}" for where, text, _ in docstrings() for turn in TURNS.finditer(text)]
    assert found == []


def test_docstrings_of_classes_begin_with_what_the_class_is() -> None:
    assert [where for where, text, is_class in docstrings() if is_class and text.startswith("`")] == []


def test_names_and_docstrings_of_tests_are_plain() -> None:
    texts = [
        (path, node, text)
        for path in of_tests()
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for text in (getattr(node, "name", "").replace("_", " "), ast.get_docstring(node) or "")
    ]
    assert [
        f"{place(path, getattr(node, 'lineno', 1))}: {turn.group()}"
        for path, node, text in texts
        for turn in TURNS_OF_TESTS.finditer(text)
    ] == []
