"""docs/sessions.md: its samples are valid, its commands exist, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import yaml

from kubeletx.api.names import SESSIONS
from kubeletx.cli.main import cli
from kubeletx.cli.options.settings import Invocation
from kubeletx.sessions.model import DATA_LIMIT, OpenRequest, Reason, SessionLimits, SessionState
from tests.unit.docs.pages import DOCS, ROOT, named_blocks, rows, section

PAGE = (DOCS / "sessions.md").read_text()
COMMANDS = [line.partition("#")[0] for line in re.findall(r"^ *\$ kubeletx (.*)$", PAGE, re.MULTILINE)]


def test_the_annotations_of_the_page_are_those_of_the_example() -> None:
    (sample,) = named_blocks(PAGE.replace("\n   ", "\n"))["pod"]
    pod = yaml.safe_load((ROOT / "examples" / "sessions" / "pod.yaml").read_text())
    assert yaml.safe_load(sample)["metadata"]["annotations"] == pod["metadata"]["annotations"]
    assert pod["metadata"]["annotations"][SESSIONS] == "true"


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_can_be_typed_like_this(line: str) -> None:
    words = shlex.split(line)
    command: click.Command = cli
    context = click.Context(cli, obj=Invocation(None, None, None, {}, None))
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    command.make_context(line, words, parent=context)


def test_the_page_shows_the_whole_life_of_a_session() -> None:
    verbs = {line.split()[1] for line in COMMANDS if line.startswith("session")}
    assert verbs == {"open", "list", "describe", "usage", "close"}


def test_the_tables_of_states_and_reasons_have_all_of_them() -> None:
    table = rows(section(PAGE, "States"))
    named = {word for row in table for word in row[0].split(", ")}
    reasons = {value or "none" for name, value in vars(Reason).items() if name.isupper()}
    assert named == {state.value for state in SessionState} | reasons


def test_the_limits_are_those_of_the_code() -> None:
    limits = {row[0]: row[1] for row in rows(section(PAGE, "Limits"))}
    ours = SessionLimits()
    assert limits["sessions of one pod"] == f"{ours.sessions_per_pod}"
    assert limits["clients of one session"].startswith(f"{ours.clients_per_session:,}, ")
    assert limits["data of a session"] == f"{DATA_LIMIT >> 20} MiB"
    request = OpenRequest(id="a/b", pod_id="a/c")
    defaults = f"{request.open_timeout_seconds:g} s and {request.close_grace_seconds:g} s by default"
    assert limits["time to open, grace period to close"].endswith(defaults)
    (liveness,) = [text for name, text in limits.items() if "must connect" in name]
    assert liveness.startswith(f"{ours.liveness_seconds:g} s;")
    assert ours.keep_seconds == 600  # ten minutes, says the page
