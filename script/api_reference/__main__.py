"""Writes the reference of kubeletx.api from the code: ``.venv/bin/python -m script.api_reference FILE``."""

from __future__ import annotations

import argparse
from pathlib import Path

from .page import page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="script.api_reference", description=__doc__)
    parser.add_argument("file", type=Path, help="Markdown file to write, such as /tmp/api.md")
    parser.parse_args().file.write_text(page())
