"""Decision 0001 shows the contract's exact protocols and types: as the code has them.

Run as a program, this file prints both blocks as they must stand there.
"""

from __future__ import annotations

import inspect
import re
import sys

import msgspec

from kubeletx import api
from tests.unit.docs.pages import DOCS, named_blocks, section

PAGE = DOCS / "decisions" / "0001-runtime-contract.md"
VALUES = (
    *(api.SandboxSpec, api.UnitSpec, api.Process, api.Machine, api.Custom, api.Mount, api.Traits),
    *(api.SandboxSummary, api.SandboxStatus, api.UnitSummary, api.UnitStatus, api.RuntimeVersion),
    *(api.RuntimeHealth, api.RuntimeEvent, api.ExecResult, api.StoreInfo, api.ImageStatus, api.UnitStats),
    *(api.StreamRequest, api.StreamUrl),
)
WIDTH = 118


def protocols() -> str:
    """Every protocol with the exact signature of each method."""
    found = []
    for protocol in (api.Runtime, *api.CAPABILITIES, api.Session):
        found.append(f"{protocol.__name__}")
        found += [
            f"    {signature(name, method)}"
            for name, method in vars(protocol).items()
            if is_own(name, method)
        ]
    return "\n".join(found) + "\n"


def is_own(name: str, method: object) -> bool:
    return inspect.isfunction(method) and not name.startswith("_")


def signature(name: str, method: object) -> str:
    assert inspect.isfunction(method)
    text = str(inspect.signature(method)).replace("'", "").replace("(self, ", "(").replace("(self)", "()")
    mark = "async " if inspect.iscoroutinefunction(method) else ""
    return f"{mark}{name}{text}".removesuffix(" -> None")


def values() -> str:
    """Every value that crosses, with its fields in order; those that may be left out come in brackets."""
    found = []
    for value in VALUES:
        fields = [f.name if f.required else f"[{f.name}]" for f in msgspec.structs.fields(value)]
        line = f"{value.__name__:<15}"
        for word in fields:
            if len(line) + len(word) > WIDTH:
                found.append(line.rstrip())
                line = " " * 15
            line += f"{word} "
        found.append(line.rstrip())
    return "\n".join(found) + "\n"


def test_the_protocols_are_the_code_s() -> None:
    assert named_blocks(PAGE.read_text())["protocols"] == [protocols()]


def test_the_values_are_the_code_s() -> None:
    assert named_blocks(PAGE.read_text())["values"] == [values()]


def test_it_counts_the_methods_right() -> None:
    words = {16: "Sixteen", 17: "Seventeen", 18: "Eighteen"}
    count = sum(is_own(name, method) for name, method in vars(api.Runtime).items())
    assert re.search(rf"\b{words[count]}\s+methods\b", PAGE.read_text())


def test_it_is_played_through_for_five_users_and_names_what_was_rejected() -> None:
    text = PAGE.read_text()
    head = next(line for line in section(text, "Played through").splitlines() if line.startswith("|"))
    assert len(head.split("|")) == 8, "a step and five users"
    assert "CRI as it is" in text
    assert "The whole pod" in text


if __name__ == "__main__":
    sys.stdout.write(f"{protocols()}---\n{values()}")
