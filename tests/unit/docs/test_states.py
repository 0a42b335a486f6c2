"""docs/states.md is what its generator writes."""

from __future__ import annotations

from script.drawings.page import page
from tests.unit.docs.pages import DOCS


def test_the_drawings_of_states_are_current() -> None:
    is_current = (DOCS / "states.md").read_text() == page()
    assert is_current, "docs/states.md differs from the code; run: .venv/bin/python -m script.drawings"
