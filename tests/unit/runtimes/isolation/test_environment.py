"""Environment of child processes: what everything needs, and what the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import Unavailable
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.runtimes.isolation.process import child_environment
from kubeletx.testing import FakeHost, endpoint


def test_a_child_gets_the_usual_variables_and_named_ones() -> None:
    own = dict.fromkeys(
        ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "https_proxy", "NO_PROXY", "KUBELETX_X", "PYTHONPATH"), "1"
    )
    others = {"NOTIFY_SOCKET": "/x", "AWS_SECRET_ACCESS_KEY": "s", "REGION": "north"}
    assert child_environment({**own, **others}) == own
    assert child_environment({**own, **others}, ("REGION", "MISSING")) == {**own, "REGION": "north"}


async def test_a_program_gets_no_other_variable_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, shown = tmp_path / "program", tmp_path / "shown"
    program.write_text(f"#!/bin/sh\nenv > {shown}\n")
    program.chmod(0o755)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("REGION", "north")
    runtime = IsolatedRuntime(None, endpoint("exec://"), None, FakeHost(tmp_path), program=(str(program),))
    runtime.variables = ("REGION",)
    with pytest.raises(Unavailable):
        await runtime.open()
    found = dict(line.split("=", 1) for line in shown.read_text().splitlines())
    assert found["REGION"] == "north"
    assert "PATH" in found
    assert "AWS_SECRET_ACCESS_KEY" not in found
    await runtime.close()
