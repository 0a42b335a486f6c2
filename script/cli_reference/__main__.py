"""Writes the reference of the command line from the code: ``.venv/bin/python -m script.cli_reference FILE``."""

from __future__ import annotations

import argparse
from pathlib import Path

from .page import page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="script.cli_reference", description=__doc__)
    parser.add_argument("file", type=Path, help="Markdown file to write, such as /tmp/cli.md")
    parser.parse_args().file.write_text(page())
