"""``kubeletx delete``."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.kube.start_timeline import PodAction
from tests.unit.cli.commands.objects import MANIFEST, T0, Run, pod


def test_delete_waits_until_the_pod_is_gone(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx("delete", "pod", "web")
    assert (result.exit_code, result.stdout) == (0, 'pod "web" deleted\n')
    assert agent.backend.calls[-1] == ("delete", "default/web", None, False)


def test_delete_waits_for_a_slow_pod_and_gives_up_after_its_timeout(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.delete_takes_effect = False
    result = kubeletx("delete", "pod", "web", "--timeout", "50ms")
    assert result.exit_code == 1
    assert "still ending" in result.stderr
    assert kubeletx("delete", "pod", "web", "--no-wait").exit_code == 0


def test_a_delete_that_takes_long_says_once_what_it_waits_for(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletx.cli.commands.delete.SAY_SECONDS", 0.05)
    agent.backend.put(pod())
    agent.backend.delete_takes_effect = False
    failed = PodAction(at=T0, action="remove sandbox", result="stop failed: no network", seconds=1)
    agent.backend.histories["default/web"] = (failed,)
    result = kubeletx("delete", "pod", "web", "--timeout", "400ms")
    assert result.stderr.count("Waiting for pod default/web: remove sandbox: stop failed: no network\n") == 1


@pytest.mark.parametrize(
    ("flags", "grace", "force"),
    [
        (["--now"], 1, False),
        (["--grace-period", "5"], 5, False),
        (["--force"], 0, True),
        (["--grace-period=0"], 0, False),
    ],
)
def test_grace_of_a_deletion(agent: Any, kubeletx: Run, flags: list[str], grace: int, force: bool) -> None:
    agent.backend.put(pod())
    assert kubeletx("delete", "pod/web", *flags).exit_code == 0
    assert agent.backend.calls[-1] == ("delete", "default/web", grace, force)


@pytest.mark.parametrize(
    "args",
    [[], ["pod"], ["runtime", "one"], ["pod", "web", "--all"], ["pod", "web", "--now", "--grace-period=3"],
     ["pod", "web", "--force", "--grace-period=3"]],
)  # fmt: skip
def test_deletions_that_make_no_sense_are_usage_errors(agent: Any, kubeletx: Run, args: list[str]) -> None:
    assert kubeletx("delete", *args).exit_code == 2


def test_delete_by_label_by_file_and_of_what_is_not_there(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("a"))
    agent.backend.put(pod("web"))
    assert kubeletx("delete", "pods", "-l", "a=1").stdout == 'pod "a" deleted\npod "web" deleted\n'
    assert kubeletx("delete", "-f", "-", "--ignore-not-found", input=MANIFEST).exit_code == 0
    assert kubeletx("delete", "pod", "web").exit_code == 1


@pytest.mark.parametrize(
    "args",
    [
        ("pod", "web", "db"),
        ("pods/web", "po/db"),
        ("pod", "web", "db", "--wait=false"),
        ("po", "--all=true", "-A"),
    ],
)
def test_pods_are_deleted_in_any_form_of_kubectl(agent: Any, kubeletx: Run, args: tuple[str, ...]) -> None:
    agent.backend.put(pod("web"))
    agent.backend.put(pod("db"))
    result = kubeletx("delete", *args, "-oname")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(result.stdout.split()) == ["pod/db", "pod/web"]
