"""``kubeletx session``: the requests it makes and its output."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import Result

from kubeletx.cli.main import cli
from kubeletx.cli.options.completing import complete_sessions
from kubeletx.server.session_views import (
    ApplicationUsageView,
    LogPositionView,
    SessionClientView,
    SessionCostsView,
    SessionUsageList,
    SessionUsageView,
)
from tests.unit.cli.conftest import NOW

Run = Callable[..., Result]
HEARTBEAT = NOW - timedelta(seconds=3)


@pytest.fixture
def sessions(agent: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("kubeletx.cli.commands.session.verbs.now", lambda: NOW)
    return agent.backend.fake_sessions


def test_open_sends_what_the_options_say(sessions: Any, kubeletx: Run) -> None:
    result = kubeletx(
        *("session", "open", "pod/web", "--name", "s1", "--application", "shop", "--data", "blue"),
        *("--open-timeout", "3s", "--close-grace", "2m", "--kill-instance", "-n", "games"),
    )
    assert (result.exit_code, result.stdout) == (0, "session/s1 Ready\n")
    ((verb, request, wait),) = sessions.calls
    assert (verb, wait) == ("open_session", True)
    assert (request.namespace, request.pod, request.name, request.data) == ("games", "web", "s1", b"blue")
    assert (request.application, request.kill_instance) == ("shop", True)
    assert (request.open_timeout_seconds, request.close_grace_seconds) == (3.0, 120.0)


def test_data_may_come_from_a_file_or_from_standard_input(
    sessions: Any, kubeletx: Run, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"\x00\xff")
    assert kubeletx("session", "open", "web", "--data-file", str(tmp_path / "data")).exit_code == 0
    assert kubeletx("session", "open", "web", "--no-wait", "--data-file", "-", input="typed").exit_code == 0
    assert [(call[1].data, call[2]) for call in sessions.calls] == [(b"\x00\xff", True), (b"typed", False)]
    both = kubeletx("session", "open", "web", "--data", "a", "--data-file", str(tmp_path / "data"))
    assert (both.exit_code, "--data or --data-file" in both.stderr) == (2, True)


def test_a_session_that_cannot_be_opened_is_a_failure_with_its_reason(sessions: Any, kubeletx: Run) -> None:
    sessions.opens_as = {"state": "Terminated", "reason": "OpenTimeout", "message": "no answer within 10 s"}
    result = kubeletx("session", "open", "web")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "session/web-1 Terminated (OpenTimeout: no answer within 10 s)\n"
    assert json.loads(kubeletx("session", "open", "web", "-o", "json").stdout)["reason"] == "OpenTimeout"


def test_list_shows_state_instance_clients_age_and_heartbeat(sessions: Any, kubeletx: Run) -> None:
    assert kubeletx("session", "list").stderr == "No sessions found.\n"
    sessions.put("a", state="Live", clients=(SessionClientView(name="ann"),), heartbeat_at=HEARTBEAT)
    sessions.put("b", silent=True, application="shop", origin="fornax")
    sessions.put("c", namespace="games", state="Terminated", reason="Evacuated")
    rows = [line.split() for line in kubeletx("session", "list").stdout.splitlines()]
    assert rows == [
        ["NAME", "STATE", "INSTANCE", "CLIENTS", "AGE", "HEARTBEAT", "REASON"],
        ["a", "Live", "default/web", "1", "10m", "3s", "<none>"],
        ["b", "Ready,Silent", "default/web", "0", "10m", "<none>", "<none>"],
    ]
    assert "Evacuated" in kubeletx("session", "list", "-A").stdout
    wide = kubeletx("session", "list", "-o", "wide").stdout
    assert "CLIENT NAMES" in wide
    assert "ann" in wide
    assert "fornax" in wide
    assert kubeletx("session", "list", "-o", "name").stdout == "session/a\nsession/b\n"
    names = [one["name"] for one in yaml.safe_load(kubeletx("session", "list", "-o", "yaml").stdout)["items"]]
    assert names == ["a", "b"]


def test_describe_shows_times_clients_and_with_wide_the_data(sessions: Any, kubeletx: Run) -> None:
    opened = datetime(2026, 1, 1, 12, 0, 0, 42_000, tzinfo=UTC)
    client = SessionClientView(name="ann", joined_at=NOW - timedelta(minutes=1))
    sessions.put("a", state="Live", data=b"blue", ready_at=opened, clients=(client,), heartbeat_at=HEARTBEAT)
    sessions.put("b", state="Terminated", closed_at=NOW, reason="Evacuated", silent=True)
    text = kubeletx("session", "describe", "session/a", "b").stdout
    first, second = text.split("\n\n")
    assert "since 9m59s, 0.042s after the request" in first
    assert "Clients (1):" in first
    assert "Last Heartbeat:  3s ago" in first
    assert "blue" not in first
    assert "Reason:" in second
    assert "(silent)" in second
    assert "blue" in kubeletx("session", "describe", "a", "-o", "wide").stdout
    assert json.loads(kubeletx("session", "describe", "a", "-o", "json").stdout)["data"] == "Ymx1ZQ=="
    assert len(json.loads(kubeletx("session", "describe", "a", "b", "-o", "json").stdout)["items"]) == 2
    missing = kubeletx("session", "describe", "nothing")
    assert (missing.exit_code, "default/nothing not found" in missing.stderr) == (1, True)


def test_close_waits_unless_it_shall_not(sessions: Any, kubeletx: Run) -> None:
    sessions.put("a")
    sessions.put("b")
    assert kubeletx("session", "close", "a", "b").stdout == "session/a Terminated\nsession/b Terminated\n"
    assert (
        kubeletx("session", "close", "b", "--grace-period", "5", "--no-wait").stdout
        == "session/b Terminating\n"
    )
    assert sessions.calls == [
        ("close_session", "default/a", None, True),
        ("close_session", "default/b", None, True),
        ("close_session", "default/b", 5.0, False),
    ]


def test_names_of_sessions_are_completed(sessions: Any, tmp_path: Path) -> None:
    sessions.put("alpha")
    sessions.put("beta")
    sessions.put("alps", namespace="games")
    context = click.Context(cli)
    context.params = {"own_root_dir": tmp_path, "namespace": None}
    assert complete_sessions(context, click.Argument(["names"]), "al") == ["alpha"]
    context.params = {"own_root_dir": tmp_path / "nowhere"}
    assert complete_sessions(context, click.Argument(["names"]), "al") == []


COSTS = SessionCostsView(
    opened=1, open_seconds=60, client_seconds=120, cpu_seconds=1.5, memory_byte_seconds=3 << 30
)
USAGE = SessionUsageView(
    namespace="default",
    name="a",
    pod="default/web",
    application="shop",
    opened_at=NOW - timedelta(minutes=1),
    counted_at=NOW,
    closed_at=NOW,
    costs=COSTS,
    logs_at_open=(LogPositionView(container="main", file="main/0.log", inode=7, offset=10),),
    logs_at_close=(LogPositionView(container="main", file="main/0.log", inode=7, offset=250),),
)


def test_usage_shows_applications_and_with_wide_their_sessions(sessions: Any, kubeletx: Run) -> None:
    assert kubeletx("session", "usage").stderr == "No sessions found.\n"
    applications = (
        ApplicationUsageView(namespace="default", application="shop", costs=COSTS),
        ApplicationUsageView(namespace="", application="", costs=COSTS),
    )
    sessions.usage = SessionUsageList(applications=applications, sessions=(USAGE,))
    (_, row) = kubeletx("session", "usage").stdout.splitlines()
    assert row.split() == ["default", "shop", "1", "60.0", "120.0", "1.500", "3.000"]
    assert "(others)" in kubeletx("session", "usage", "-A").stdout
    assert "default/a" in kubeletx("session", "usage", "-o", "wide").stdout
    found = json.loads(kubeletx("session", "usage", "-o", "json").stdout)
    assert found["sessions"][0]["logsAtClose"][0]["offset"] == 250


def test_describe_shows_the_usage_of_a_session_and_its_part_of_the_log(sessions: Any, kubeletx: Run) -> None:
    sessions.put("a", usage=USAGE)
    text = kubeletx("session", "describe", "a").stdout
    assert "1.500 s" in text
    assert "3.000 GiB s" in text
    assert ["main", "main/0.log", "10", "250"] in [line.split() for line in text.splitlines()]
