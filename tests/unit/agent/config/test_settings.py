"""Every setting that is accepted is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kubeletx.agent
from kubeletx.agent.config.settings import SETTINGS

SOURCES = "\n".join(
    path.read_text()
    for path in sorted(Path(kubeletx.agent.__file__).parent.rglob("*.py"))
    if path.name not in ("config.py", "config_settings.py", "config_kinds.py")
)


@pytest.mark.parametrize("path", [setting.path for setting in SETTINGS])
def test_a_setting_that_is_accepted_is_used(path: str) -> None:
    section, _, field = path.partition(".")
    used = rf"\b({section}|settings)\.{field}\b|\"{field}\""
    assert re.search(used, SOURCES), f"{path} is used nowhere: wire or refuse it"
