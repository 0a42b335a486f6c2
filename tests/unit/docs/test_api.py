"""docs/api.md is what its generator writes, and has every protocol that a plugin implements."""

from __future__ import annotations

from kubeletx import api
from script.api_reference.page import page
from tests.unit.docs.pages import DOCS


def test_the_reference_of_the_api_is_current() -> None:
    is_current = (DOCS / "api.md").read_text() == page()
    assert is_current, "docs/api.md differs from the code; run: .venv/bin/python -m script.api_reference"


def test_every_capability_and_every_register_function_is_in_it() -> None:
    names = [one.__name__ for one in api.CAPABILITIES] + [
        "Runtime",
        "Session",
        "RegisterRuntime",
        "UnitStats",
    ]
    text = page()
    assert [name for name in names if f"\n### {name}\n" not in text] == []
