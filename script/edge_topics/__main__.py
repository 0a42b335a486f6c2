"""Writes docs/edge-topics.md from the code: ``.venv/bin/python -m script.edge_topics``."""

from __future__ import annotations

from pathlib import Path

from .page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "edge-topics.md"


if __name__ == "__main__":
    PAGE.write_text(page())
