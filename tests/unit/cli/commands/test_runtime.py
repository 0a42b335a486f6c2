"""``kubeletx runtime``."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.commands.objects import Run, runtime


def test_runtimes_are_added_cordoned_and_removed(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("runtime", "add", "vm:lab:qemu:///system").stdout == "runtime/lab added (NotReady)\n"
    assert kubeletx("runtime", "add", "vm:lab:qemu:///system").exit_code == 1
    assert kubeletx("runtime", "cordon", "lab").stdout == "runtime/lab cordoned\n"
    assert "SchedulingDisabled" in kubeletx("runtime", "list").stdout
    assert kubeletx("runtime", "uncordon", "lab").stdout == "runtime/lab uncordoned\n"
    assert (
        kubeletx("runtime", "remove", "lab", "--drain").stdout
        == "runtime lab cordoned\nruntime lab removed\n"
    )
    assert agent.backend.calls[-1] == ("remove", "lab", True, False, 300.0)


def test_a_runtime_with_pods_is_not_removed(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime(pods=2)}
    result = kubeletx("runtime", "remove", "one")
    assert (result.exit_code, result.stderr) == (1, "Error: runtime one has 2 pods; use --drain\n")
