"""`TestResult`: the result of one test, as the pytest process writes it and the check reads it."""

from __future__ import annotations

from typing import Final

import msgspec

RESULTS_FILE: Final = "KUBELETX_CHECK_RESULTS"
"""Environment variable with the path of the file that gets the results."""
ENDPOINT: Final = "KUBELETX_CHECK_ENDPOINT"
"""Environment variable with a `TestedEndpoint` as JSON."""
WITHOUT: Final = "KUBELETX_CHECK_WITHOUT"
"""Environment variable with the hook whose contract tests are not run; not set: all are."""
STARTED: Final = "started"
NOT_RUN: Final = "not run"
"""First words of the reason of a skipped test that might be applicable."""

LONGEST_SENTENCE = 160


class TestResult(msgspec.Struct, frozen=True):
    """Result of one test. `title`: the test as a sentence. `hook`: such as ``runtime``; empty: a file of tests.

    `outcome`: passed, failed, skipped, or `STARTED` before that. `text`: explanation or reason.
    """

    __test__ = False
    title: str
    hook: str
    outcome: str
    text: str = ""

    @property
    def is_not_run(self) -> bool:
        """True if the test was skipped because of failures of other tests."""
        return self.outcome == "skipped" and self.text.startswith(NOT_RUN)

    @property
    def subject(self) -> str:
        """The sentence of the contract that was broken: that of the explanation, else the test's title."""
        return self.text.splitlines()[0] if "\n  found:\n" in self.text else self.title

    @property
    def sentence(self) -> str:
        """The found fault or the reason in one line."""
        lines = self.text.splitlines()
        if "  found:" in lines:
            rest = lines[lines.index("  found:") + 1 :]
            end = next((at for at, line in enumerate(rest) if not line.startswith("    ")), len(rest))
            lines = rest[:end]
        text = " ".join(" ".join(lines).split())
        return text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]}..."


class TestedEndpoint(msgspec.Struct, frozen=True):
    """The runtime to test. `kind`: of the runtime; `distribution`: that registers it. `settings`: not yet decoded."""

    __test__ = False
    distribution: str
    kind: str
    url: str
    settings: dict[str, object] = {}
