"""Lets these tests import the models of the unit tests."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).parent.parent / "unit"

for room in ("agent", "pods", "cri"):
    sys.path.insert(0, str(UNIT / room))
