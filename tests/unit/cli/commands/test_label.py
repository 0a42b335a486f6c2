"""``kubeletx label``, ``annotate``, ``edit`` and ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import names
from tests.unit.cli.commands.objects import MANIFEST, Run, pod


def labels(agent: Any, name: str = "web") -> dict[str, str]:
    found: dict[str, str] = agent.backend.pods["default", name].metadata.labels
    return found


def annotations_of(agent: Any) -> dict[str, str]:
    found: dict[str, str] = agent.backend.pods["default", "web"].metadata.annotations
    return found


def test_labels_are_set_and_removed(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    assert kubeletx("label", "pod", "web", "b=2", "c=").stdout == "pod/web labeled\n"
    assert labels(agent) == {"a": "1", "b": "2", "c": ""}
    assert kubeletx("label", "pod/web", "c-", "b-").stdout == "pod/web unlabeled\n"
    assert kubeletx("label", "pod/web", "a=1", "x-").stdout == 'label "x" not found.\npod/web not labeled\n'
    assert labels(agent) == {"a": "1"}


def test_another_value_needs_overwrite(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx("label", "pod", "web", "a=2")
    assert result.exit_code == 2
    assert "'a' already has a value (1), and --overwrite is false" in result.stderr
    assert kubeletx("label", "pod", "web", "a=2", "--overwrite", "--dry-run").stdout == (
        "pod/web labeled (dry run)\n"
    )
    assert labels(agent) == {"a": "1"}
    assert kubeletx("label", "pod", "web", "a=2", "--overwrite").exit_code == 0
    assert labels(agent) == {"a": "2"}


def test_annotations_of_the_agent_are_not_written(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.put(pod("db"))
    result = kubeletx("annotate", "pods", "-la=1", "team=b=c")
    assert result.stdout == "pod/db annotated\npod/web annotated\n"
    assert annotations_of(agent) == {"team": "b=c"}


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("file", "it comes from a manifest file of this node; change that file"),
        ("api", "use 'kubectl label pod web -n default'"),
    ],
)
def test_pods_of_other_sources_are_refused_with_the_way_to_go(
    source: str, fix: str, agent: Any, kubeletx: Run
) -> None:
    metadata = replace(pod().metadata, annotations={names.CONFIG_SOURCE: source})
    agent.backend.put(replace(pod(), metadata=metadata))
    result = kubeletx("label", "pod", "web", "b=1")
    assert result.exit_code == 1
    assert fix in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("pod", "web"),
        ("a=1",),
        ("pod", "a=1"),
        ("pod", "web", "a=1", "b"),
        ("pod", "web", "a=1", "a-"),
        ("node", "x", "a=1"),
        ("pod", "web", "=1"),
    ],
)
def test_wrong_words_are_mistakes(args: tuple[str, ...], agent: Any, kubeletx: Run) -> None:
    assert kubeletx("label", *args).exit_code == 2


def test_an_edit_replaces_the_pod(agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.backend.put(pod())
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/busybox/busybox:2/")
    assert kubeletx("edit", "pod", "web").stdout == "pod/web edited\n"
    assert agent.backend.pods["default", "web"].spec.containers[0].image == "busybox:2"
    monkeypatch.setenv("KUBE_EDITOR", "true")
    assert kubeletx("edit", "pod/web").stdout == "Edit cancelled, no changes made.\n"
    monkeypatch.setenv("KUBE_EDITOR", "cp /dev/null")
    result = kubeletx("edit", "pod/web")
    assert (result.exit_code, result.stderr) == (1, "Edit cancelled, saved file was empty.\n")


def test_an_invalid_edit_is_opened_again_with_the_reason(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    agent.backend.put(pod())
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!/bin/sh\ncp $1 {tmp_path}/seen\nif grep -q 'not valid' $1; then sed -i 's/^spec: 7/spec: 8/' $1\n"
        "else sed -i -e '/^spec:/,$d' $1; echo 'spec: 7' >> $1; fi\n"
    )
    editor.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(editor))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    editor.write_text(editor.read_text().replace("spec: 8", "spec: 7"))
    result = kubeletx("edit", "pod", "web")
    assert result.exit_code == 1
    assert "# The pod was not valid:\n# * " in (tmp_path / "seen").read_text()
    (copy,) = tmp_path.glob("kubeletx-edit-*.yaml")
    assert copy.read_text().endswith("spec: 7\n")
    assert str(copy) in result.stderr


def test_a_diff_shows_what_apply_would_change(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(MANIFEST)
    result = kubeletx("diff", "-f", str(file))
    assert result.exit_code == 1
    assert result.stdout.startswith("--- live/v1.Pod.default.web\n+++ merged/v1.Pod.default.web\n")
    kubeletx("apply", "-f", str(file))
    result = kubeletx("diff", "-f", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    file.write_text(MANIFEST.replace("IMAGE", "other").replace("spec: {", "spec: {restartPolicy: Never, "))
    result = kubeletx("diff", "-f", str(file))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert {"-  - image: IMAGE", "+  - image: other", "+  restartPolicy: Never"} <= set(lines)
    assert kubeletx("diff", "-f", str(tmp_path / "none.yaml")).exit_code == 2
