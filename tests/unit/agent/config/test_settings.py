"""Every setting that is accepted is used."""

from __future__ import annotations

import re
from pathlib import Path

import kubeletx
from kubeletx.agent.config.tree import SETTINGS

HOST = Path(kubeletx.__file__).parent
SOURCES = "\n".join(
    path.read_text()
    for room in ("agent", "cli", "plugins")
    for path in sorted((HOST / room).rglob("*.py"))
    if path.parent.name != "config" or path.name in ("check.py", "endpoints.py", "load.py", "ports.py")
)


def test_a_setting_that_is_accepted_is_used() -> None:
    parts = [setting.path.partition(".") for setting in SETTINGS]
    unused = [
        f"{section}.{field}"
        for section, _, field in parts
        if not re.search(rf"\b({section}|settings|config|values)\.{field}\b|\"{field}\"", SOURCES)
    ]
    assert unused == [], "wire or refuse these settings"
