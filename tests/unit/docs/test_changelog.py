"""Changelogs: each distribution has one for its version, and fragments that the next release can read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.docs.pages import ROOT

FRAGMENT = re.compile(r"\+?[\w-]+\.(added|changed|deprecated|removed|fixed|security)(\.\d+)?\.md")
START = "<!-- towncrier release notes start -->"
DISTRIBUTIONS = [
    path.parent
    for path in (
        ROOT / "pyproject.toml",
        *sorted(ROOT.glob("*/pyproject.toml")),
        *sorted(ROOT.glob("plugins/*/pyproject.toml")),
        *sorted(ROOT.glob("sdk/*/pyproject.toml")),
    )
    if "towncrier" in tomllib.loads(path.read_text()).get("tool", {})
]


def names(folder: Path) -> str:
    return str(folder.relative_to(ROOT))


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=names)
def test_the_newest_section_of_a_changelog_is_the_version_of_its_distribution(folder: Path) -> None:
    version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    _, start, releases = (folder / "CHANGELOG.md").read_text().partition(START)
    assert start
    assert re.findall(r"^## (\S+) \(", releases, re.MULTILINE)[0] == version


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=names)
def test_fragments_are_one_sentence_of_a_known_kind(folder: Path) -> None:
    assert (folder / "changelog").is_dir()
    for fragment in (folder / "changelog").glob("*.md"):
        assert FRAGMENT.fullmatch(fragment.name), fragment
        text = fragment.read_text().strip()
        assert "\n" not in text, fragment
        assert text.endswith("."), fragment
