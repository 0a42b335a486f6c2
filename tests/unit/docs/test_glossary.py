"""docs/glossary.md: each word is a name in the code, and is linked from where newcomers begin."""

from __future__ import annotations

import importlib

import pytest

from tests.unit.docs.pages import DOCS, ROOT, rows

ROWS = rows((DOCS / "glossary.md").read_text())


@pytest.mark.parametrize(("word", "meaning", "name"), ROWS, ids=lambda text: text[:20])
def test_the_name_of_each_word_is_in_the_code(word: str, meaning: str, name: str) -> None:
    assert word
    assert meaning
    module, _, attribute = name.strip("`").rpartition(".")
    assert hasattr(importlib.import_module(module), attribute), f"{word}: no {name}"


def test_words_are_in_alphabetical_order_and_each_is_there_once() -> None:
    words = [row[0].lower() for row in ROWS]
    assert words == sorted(set(words))


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_newcomers_find_the_glossary(page: str) -> None:
    assert "glossary.md)" in (ROOT / page).read_text()
