"""``kubeletx remedy`` in the list of commands: it hands over to the controller's own command line."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from kubeletx.cli.main import cli
from kubeletx.remedy.main import verbs


def test_the_help_is_the_controllers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(args=["remedy", "--help"], prog_name="kubeletx")
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    assert "--metrics-address HOST:PORT" in help_text
    assert all(f"    {verb} " in help_text for verb in verbs())
    assert max(map(len, help_text.splitlines())) <= 80


def test_verbs_are_completed() -> None:
    complete = BashComplete(cli, {}, "kubeletx", "_KUBELETX_COMPLETE")
    found = [item.value for item in complete.get_completions(["remedy"], "")]
    assert {"plan", "history", "pause", "resume", "stop"} <= set(found)
    assert complete.get_completions(["remedy", "stop"], "") == []
