"""Every page: no dead link, no command that does not exist, no word of the machinery around the project."""

from __future__ import annotations

import re
from pathlib import Path

import click

from kubeletx.cli.main import COMMANDS, cli
from kubeletx_testing.lab import PrivateAgent
from tests.unit.docs.pages import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("testing/*.md"),
        *ROOT.glob("plugins/*/*.md"),
        *ROOT.glob("sdk/*/*.md"),
        *ROOT.glob("examples/plugins/*/*.md"),
        *ROOT.glob("changelog/*.md"),
        *ROOT.glob("testing/changelog/*.md"),
        *ROOT.glob("plugins/*/changelog/*.md"),
        *ROOT.glob("sdk/*/changelog/*.md"),
    ]
)


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as its renderer makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_links_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"https?:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{names(page)}: {link}")
    assert dead == []


def test_files_that_are_named_exist() -> None:
    places = re.compile(r"`((?:docs|script|tests|examples|kubeletx|plugins|protos|sdk|testing)/[\w./-]*)`")
    named = ((page, word) for page in PAGES for word in places.findall(page.read_text()))
    missing = [
        f"{names(page)}: {word}"
        for page, word in named
        if not re.search(r"[A-Z]{3,}", word) and not (ROOT / word).exists()
    ]
    assert missing == []


def test_commands_that_are_shown_exist() -> None:
    context = click.Context(cli)
    unknown = []
    for page in PAGES:
        for line in re.findall(r"^\$ (?:kx|kubeletx) (.*)$", page.read_text(), re.MULTILINE):
            words = [word for word in line.partition("#")[0].split() if not word.startswith("-")]
            if "--root-dir" in line:
                words = [word for word in words if word in COMMANDS or word in ("describe",)]
            if not words or "--container-runtime-endpoint" in line:
                continue
            command = cli.get_command(context, words[0]) if words[0] in COMMANDS else None
            if command is None or (
                isinstance(command, click.Group) and command.get_command(context, words[1]) is None
            ):
                unknown.append(f"{names(page)}: {line}")
    assert unknown == []


def test_the_tour_names_pods_of_the_demo() -> None:
    tour = (ROOT / "README.md").read_text().partition("## A short tour")[2].partition("\n## ")[0]
    manifests = {path.stem for path in (ROOT / "examples" / "pods").glob("*.yaml")}
    said = set(re.findall(r"([\w-]+)-demo\b", tour))
    assert said
    assert said <= manifests
    assert (PrivateAgent.__init__.__kwdefaults__ or {})["name"] == "agent"
    assert "--root-dir .demo/lab/agent" in tour
