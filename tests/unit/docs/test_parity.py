"""The parity page: every test that it names exists, every row has a known state."""

from __future__ import annotations

import re

from tests.unit.docs.pages import DOCS, ROOT, is_rule, rows, words

PAGE = (DOCS / "kubelet-parity.md").read_text()
STATES = {"done", "partly", "not yet", "not run here", "no meaning"}


def test_named_tests_exist() -> None:
    there = set()
    for path in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("testing/tests/**/test_*.py")]:
        there |= set(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))
    named = {word for word in words(PAGE) if word.startswith("test_")}
    assert named - there == set()


def test_every_row_has_a_state_and_what_is_done_has_a_test() -> None:
    table = [row for row in rows(PAGE) if len(row) == 4 and not is_rule(row)]
    assert len(table) > 80
    for row in table:
        assert row[2] in STATES, row
        assert row[3], row
        if row[2] == "done":
            assert "test_" in row[3] or "every test" in row[3], row
