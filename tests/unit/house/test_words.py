"""Docstrings are plain English: present tense, subject first, the field's words (see the style guide's examples).

The lists hold the turns of phrase that a first reading most often misses. A docstring that needs one of these words for
another reason says the same in other words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = [
    ROOT / "kubeletx",
    ROOT / "testing" / "src",
    *ROOT.glob("plugins/*/src"),
    *ROOT.glob("examples/plugins/*/src"),
    ROOT / "script",
]
FILES = sorted(path for package in PACKAGES for path in package.rglob("*.py") if "stubs" not in path.parts)

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


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_docstrings_are_plain(path: Path) -> None:
    found = [f"line {line}: {text.splitlines()[0]}" for line, text in docstrings(path) if FIRST.match(text)]
    found += [f"line {line}: {m.group()}" for line, text in docstrings(path) for m in TURNS.finditer(text)]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_docstrings_of_classes_begin_with_what_the_class_is(path: Path) -> None:
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    found = [
        f"line {one.lineno}: {one.name}" for one in classes if (ast.get_docstring(one) or "").startswith("`")
    ]
    assert found == []
