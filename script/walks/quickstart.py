"""The steps of docs/quickstart.md, as a newcomer copies them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"


class Step(NamedTuple):
    """A numbered step. `files`: text of each manifest by its name. `commands`: lines of a root shell, without prompt."""

    files: dict[str, str]
    commands: list[str]


def read_steps() -> dict[int, Step]:
    """Return the steps by their numbers."""
    _, *parts = re.split(r"^(\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)
    return {int(number): _step(text) for number, text in zip(parts[::2], parts[1::2], strict=True)}


def _step(text: str) -> Step:
    files = re.findall(r"<!-- manifest (\S+) -->\n +```yaml\n(.*?)\n +```", text, re.DOTALL)
    return Step(
        files={name: dedent(block) for name, block in files},
        commands=re.findall(r"^ +# (.*)$", text, re.MULTILINE),
    )
