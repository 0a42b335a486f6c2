"""Writes the code templates from the examples: ``.venv/bin/python -m script.scaffolds``."""

from __future__ import annotations

from .templates import TEMPLATES, code_templates

if __name__ == "__main__":
    for name, text in code_templates().items():
        path = TEMPLATES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
