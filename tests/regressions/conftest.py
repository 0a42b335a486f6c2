"""Lets these tests import the models of the unit tests: every folder that has some has a conftest."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).parents[1] / "unit"

for folder in sorted(path.parent for path in UNIT.rglob("conftest.py")):
    sys.path.append(str(folder))
