"""``kubeletx health`` in the list of commands: it hands over to the guardian's own command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from kubeletx.cli.main import cli
from kubeletx.health.main import verbs


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(args=list(arguments), prog_name="kubeletx")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_flags_and_verbs_reach_the_guardians_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("health", "status", "--run-dir", str(tmp_path)) == 1
    assert f"no guardian has run with --run-dir {tmp_path}" in capsys.readouterr().err


def test_the_help_is_the_guardians(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("health", "--help") == 0
    help_text = capsys.readouterr().out
    assert "--slots BACKEND" in help_text
    assert all(f"    {verb} " in help_text for verb in verbs())


def test_verbs_are_completed() -> None:
    complete = BashComplete(cli, {}, "kubeletx", "_KUBELETX_COMPLETE")
    assert [item.value for item in complete.get_completions(["health"], "m")] == [
        "mark-active",
        "mark-failed",
        "maintenance",
    ]
    assert complete.get_completions(["health", "status"], "") == []
