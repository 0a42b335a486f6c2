"""The code templates of ``kubeletx plugin new`` are the code of the example plugins."""

from __future__ import annotations

from script.scaffolds.templates import TEMPLATES, code_templates


def test_the_templates_are_current() -> None:
    written = {name: (TEMPLATES / name).read_text() for name in code_templates()}
    assert written == code_templates(), "run: .venv/bin/python -m script.scaffolds"
