"""Writes docs/api.md from the code: ``.venv/bin/python -m script.api_reference``."""

from __future__ import annotations

from pathlib import Path

from .page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


if __name__ == "__main__":
    PAGE.write_text(page())
