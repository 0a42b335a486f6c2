"""``kubeletx logs``."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.commands.objects import Run, pod


def test_logs_are_printed_as_they_are(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod(containers=("web", "side")))
    agent.backend.logs = {"web": [b"one\n", b"\xff\n"], "side": [b"two\n"]}
    result = kubeletx("logs", "web", "--tail", "5", "--since", "1m", "--timestamps", "-p")
    assert result.stdout_bytes == b"one\n\xff\n"
    assert result.stderr == 'Defaulted container "web" out of: web, side\n'
    options = agent.backend.calls[-1][2]
    assert (options.tail_lines, options.since_seconds, options.timestamps, options.previous) == (
        5,
        60,
        True,
        True,
    )
    assert kubeletx("logs", "pod/web", "-c", "side").stdout == "two\n"


def test_logs_of_an_unknown_pod_suggest_another(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx("logs", "wbe")
    assert (result.exit_code, result.stderr) == (1, "Error: pod default/wbe not found; did you mean 'web'?\n")
    assert kubeletx("logs", "web", "--since", "yesterday").exit_code == 2


def test_logs_in_any_form_of_kubectl(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("web"))
    agent.backend.logs = {"web": [b"one\n"]}
    for args in (
        ("pod/web", "--follow=false", "--tail=5"),
        ("web", "-c=web", "--since=5m"),
        ("-f", "po/web", "-cweb"),
    ):
        result = kubeletx("logs", *args, "--timestamps=true")
        assert (result.exit_code, result.stderr) == (0, ""), args


def test_logs_of_several_pods_by_their_labels(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("one"))
    agent.backend.put(pod("two"))
    agent.backend.logs = {"web": [b"line\n"]}
    result = kubeletx("logs", "-l", "a=1", "--prefix")
    assert result.stdout == "[pod/one/web] line\n[pod/two/web] line\n"
    assert agent.backend.calls[-1][2].tail_lines == 10
    result = kubeletx("logs", "-fla=1", "--max-log-requests=1")
    assert result.exit_code == 2
    assert "give --max-log-requests=2" in result.stderr
    assert sorted(kubeletx("logs", "-fla=1").stdout.splitlines()) == ["line", "line"]
    assert kubeletx("logs", "-l", "b=1").stderr == "No resources found in default namespace.\n"
    assert kubeletx("logs", "one", "-l", "b=1").exit_code == kubeletx("logs").exit_code == 2
