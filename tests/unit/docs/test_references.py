"""References in code, tests and pages lead to things that exist: rows, sections, decisions, files and headings.

A code such as (A6) is a row of docs/kubelet-parity.md. Codes, sections and decisions are looked for in comments,
docstrings and pages; names of files in every text.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.unit.docs.pages import DOCS, ROOT

SOURCES = ("kubeletx", "plugins", "testing", "tests", "script", "examples", "protos", "deploy", "docs")
ENDS = {"", ".py", ".md", ".toml", ".sh", ".yaml", ".yml", ".proto", ".service"}
SKIPPED = {"stubs", "__pycache__", "node_modules", ".venv"}

ROWS = re.compile(r"^\| ((A|B|C|D|E|I|L|N|P|R|S|ST|T|V|W|X)\d+) \|", re.MULTILINE)
CODE = r"(?:ST|[A-Z])\d{1,2}"
IN_PARENTHESES = re.compile(rf"(?<!\$)\((?=(?:[^()]*[,; ])?{CODE}\b)([^()]*)\)")
AFTER_KUBELET = re.compile(rf"\bkubelet ({CODE}(?:(?:, |, and | and | to |-){CODE})*)\b")
PARITY_ROW = re.compile(rf"\b({CODE}) of the parity table")

SECTION = re.compile(r"\bsections? (\d+(?:\.\d+)*)")
OUTSIDE = re.compile(r"\b(RFC|[Dd]raft|[Ss]pecification|[Pp]rotocol)\b")
DECISIONS = re.compile(r"\bDECISIONS (\d+(?:(?:, | and | to |-)\d+\b)*)")
DECISION = re.compile(r"\b[Dd]ecisions? (\d{4})\b")
PAGE = re.compile(r"(?<![\w/.-])docs/([\w./-]+\.(?:md|txt|json))(?:#([\w-]+)|,? \"([^\"]+)\")?")
HERE = re.compile(
    r"(?<![\w/.~>-])((?:kubeletx|plugins|testing|tests|script|examples|protos|deploy)/[\w./-]*\w)"
)
AFTER_HASH = re.compile("#.*")
REFERENCES = (IN_PARENTHESES, AFTER_KUBELET, PARITY_ROW, SECTION, DECISIONS, DECISION, HERE)
"""What comments are searched for; to find the comments of a file takes long."""
ELSEWHERE = {"crictl.md", "cri/config.md", "interop/qcow2.txt"}
"""Pages of other projects."""


def files() -> Iterator[Path]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.is_file()
                and path.suffix in ENDS
                and not SKIPPED & set(path.parts)
                and path != Path(__file__)
            ):
                yield path
    yield from (*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / ".importlinter")


@cache
def whole_texts() -> dict[Path, str]:
    return {path: path.read_text(errors="replace") for path in files()}


@cache
def prose() -> dict[Path, list[str]]:
    """Comments and docstrings of Python files, the whole of every other file."""
    return {
        path: list(_said(text)) if path.suffix == ".py" else [text] for path, text in whole_texts().items()
    }


def _said(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value
    if any(one.search(said) for said in AFTER_HASH.findall(text) for one in REFERENCES):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def numbers(text: str) -> list[int]:
    """The numbers of a list such as ``3, 4`` or ``3 to 6``."""
    return [int(number) for number in re.findall(r"\d+", text)]


def anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in headings(page)}


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)


def where(path: Path, text: str) -> str:
    return f"{path.relative_to(ROOT)}: {text}"


def test_codes_are_rows_of_the_parity_page() -> None:
    there = {row for row, _ in ROWS.findall((DOCS / "kubelet-parity.md").read_text())}
    found, dead = 0, []
    for path, texts in prose().items():
        for text in texts:
            named = [*IN_PARENTHESES.findall(text), *AFTER_KUBELET.findall(text), *PARITY_ROW.findall(text)]
            for code in (code for words in named for code in re.findall(rf"\b{CODE}\b", words)):
                found += 1
                if code not in there:
                    dead.append(where(path, code))
    assert found > 100
    assert dead == []


def test_sections_exist_or_name_the_document_that_has_them() -> None:
    numbered = {head.partition(".")[0] for head in headings(DOCS / "kubelet-parity.md") if head[0].isdigit()}
    dead = []
    for path, texts in prose().items():
        for text in texts:
            for match in SECTION.finditer(text):
                before, after = text[max(0, match.start() - 60) : match.start()], text[match.end() :]
                here = (
                    after.startswith((" of the parity table", " of the parity page")) and match[1] in numbered
                )
                if not here and not OUTSIDE.search(before):
                    dead.append(where(path, match[0]))
    assert dead == []


def test_decisions_that_are_cited_are_answered() -> None:
    answers = re.findall(r"^(\d+)\. ", (DOCS / "decisions" / "answers.md").read_text(), re.MULTILINE)
    pages = {path.name[:4] for path in (DOCS / "decisions").glob("0*.md")}
    found, dead = 0, []
    for path, texts in prose().items():
        for text in texts:
            cited = [str(number) for words in DECISIONS.findall(text) for number in numbers(words)]
            found += len(cited)
            dead += [where(path, f"DECISIONS {number}") for number in cited if number not in answers]
            dead += [
                where(path, f"decision {number}") for number in DECISION.findall(text) if number not in pages
            ]
    assert found > 50
    assert dead == []


def test_pages_and_headings_that_are_named_exist() -> None:
    dead = []
    for path, text in whole_texts().items():
        for match in PAGE.finditer(text):
            page = DOCS / match[1]
            if match[1] in ELSEWHERE:
                continue
            if (
                not page.exists()
                or (match[2] and match[2] not in anchors(page))
                or (match[3] and not any(head.endswith(match[3]) for head in headings(page)))
            ):
                dead.append(where(path, match[0]))
    assert dead == []


def test_files_that_are_named_exist() -> None:
    dead = []
    for path, texts in prose().items():
        if path.suffix == ".py":
            for text in texts:
                dead += [where(path, name) for name in HERE.findall(text) if not (ROOT / name).exists()]
    assert dead == []


def test_the_plan_of_the_house_names_places_that_exist() -> None:
    page = (DOCS / "architecture.md").read_text()
    table = page.partition("Where to change what:")[2].partition("\n## ")[0]
    places = re.findall(r"`([a-z_]+/[\w./*]*)`", table)
    assert len(places) > 20
    assert [p for p in places if not list((ROOT / "kubeletx").glob(p)) and not list(ROOT.glob(p))] == []
