"""The mutants of the example plugin, and the list of those that change nothing."""

from __future__ import annotations

import ast

import pytest

from script.mutation import main
from script.mutation.equivalents import entries, function_at
from script.mutation.mutators import mutants_of


def test_every_entry_of_the_list_is_one_mutant_of_the_example_and_has_a_reason() -> None:
    mutants, left_out = main.all_mutants()
    assert left_out == len(entries())
    assert all(entry["reason"].strip() for entry in entries())
    assert len(mutants) > 66


def test_an_entry_that_is_not_a_mutant_is_an_error() -> None:
    entry = {
        "module": "runtime.py",
        "function": "f",
        "before": "return 1",
        "after": "return 2",
        "reason": "none",
    }
    with pytest.raises(ValueError, match="no mutant changes 'return 1'; remove or correct the entry"):
        main.all_mutants([entry])


def test_every_mutant_is_python_and_differs_from_the_others() -> None:
    source = "def f(a):\n    if a > 1:\n        return 2\n    return None\n"
    mutants = mutants_of(source)
    assert len({one.text for one in mutants}) == len(mutants) > 5
    for one in mutants:
        ast.parse(one.text)


def test_a_line_is_in_its_function_and_class() -> None:
    source = "class A:\n    def f(self):\n        return 1\n\nx = 1\n"
    assert function_at(source, 3) == "A.f"
    assert function_at(source, 5) == ""
