"""Lets these tests import the models of the unit tests."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).parent.parent / "unit"

for room in ("agent", "apiserver", "cri", "pods"):
    sys.path.insert(0, str(UNIT / room))
