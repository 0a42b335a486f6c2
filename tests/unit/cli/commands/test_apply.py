"""``kubeletx apply`` and ``kubeletx replace``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.commands.objects import MANIFEST, Run, pod

MISSPELT = MANIFEST.replace("spec: {", "spec: {restartPolice: Never, ")


def test_apply_creates_changes_and_leaves_alone(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(MANIFEST)
    assert kubeletx("apply", "-f", str(file)).stdout == "pod/web created\n"
    assert kubeletx("apply", "-f", str(file)).stdout == "pod/web unchanged\n"
    assert (
        kubeletx("apply", "-f", "-", input=MANIFEST.replace("IMAGE", "new")).stdout == "pod/web configured\n"
    )


def test_apply_of_a_directory_takes_every_manifest_in_order(
    agent: Any, kubeletx: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "pods"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.yaml").write_text(MANIFEST.replace("name: web}", f"name: {name}}}", 1))
    (folder / "notes.txt").write_text("nothing")
    assert kubeletx("apply", "-f", str(folder)).stdout == "pod/a created\npod/b created\n"


def test_apply_says_what_is_wrong_in_which_file(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("kind: Pod\nspec: {containers: 3}\n")
    result = kubeletx("apply", "-f", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {file}: ")
    missing = kubeletx("apply", "-f", str(tmp_path / "none.yaml"))
    assert "cannot be read: No such file" in missing.stderr


def test_what_may_not_change_points_to_replace(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    changed = MANIFEST.replace("spec: {", "spec: {restartPolicy: Never, ")
    result = kubeletx("apply", "-f", "-", input=changed)
    assert result.exit_code == 1
    assert "replace --force" in result.stderr
    assert kubeletx("replace", "--force", "-f", "-", input=changed).stdout == "pod/web replaced\n"
    assert agent.backend.calls[-1] == ("replace", "web", True)


def test_a_file_whose_name_is_not_utf8_can_be_applied(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\udcff.yaml"
    path.write_text("kind: Pod")
    result = kubeletx("apply", "-f", str(path))
    assert result.exit_code != 0
    assert "a\\udcff.yaml: apiVersion: is missing" in result.stderr


def test_apply_warns_of_unknown_fields_as_kubectl_does(agent: Any, kubeletx: Run) -> None:
    for words in ((), ("--validate=warn",)):
        result = kubeletx("apply", "-f", "-", *words, input=MISSPELT)
        assert result.stderr == 'Warning: unknown field "spec.restartPolice"\n'
        assert result.exit_code == 0
    for word in ("ignore", "false"):
        assert kubeletx("apply", "-f", "-", f"--validate={word}", input=MISSPELT).stderr == ""


@pytest.mark.parametrize("words", [["--validate=strict"], ["--validate=true"], ["--validate"]])
def test_strict_validation_refuses_unknown_fields(agent: Any, kubeletx: Run, words: list[str]) -> None:
    result = kubeletx("apply", *words, "-f", "-", input=MISSPELT)
    assert result.exit_code == 1
    assert 'strict decoding error: unknown field "spec.restartPolice"' in result.stderr
    assert agent.backend.pods == {}


@pytest.mark.parametrize(
    ("word", "suffix"),
    [
        ("--dry-run=client", " (dry run)"),
        ("--dry-run", " (dry run)"),
        ("--dry-run=server", " (server dry run)"),
    ],
)
def test_a_dry_run_changes_nothing(agent: Any, kubeletx: Run, word: str, suffix: str) -> None:
    assert kubeletx("apply", word, "-f", "-", input=MANIFEST).stdout == f"pod/web created{suffix}\n"
    assert agent.backend.pods == {}
    agent.backend.put(pod())
    before = dict(agent.backend.pods)
    changed = MANIFEST.replace("IMAGE", "other")
    assert kubeletx("replace", word, "-f", "-", input=changed).stdout == f"pod/web replaced{suffix}\n"
    assert agent.backend.pods == before
    assert kubeletx("apply", "--dry-run=none", "-f", "-", input=changed).stdout == "pod/web configured\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("apply", "--dry-run=x"), 'Invalid dry-run value (x). Must be "none", "server", or "client".'),
        (
            ("apply", "--validate=x"),
            '--validate "x" is not one of strict (or true), warn, ignore (or false)',
        ),
        (("replace", "--force", "--dry-run=client"), "--dry-run can not be used when --force is set"),
    ],
)
def test_wrong_words_of_validation_and_dry_runs_are_usage_errors(
    agent: Any, kubeletx: Run, args: tuple[str, ...], words: str
) -> None:
    result = kubeletx(*args, "-f", "-", input=MANIFEST)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_url_or_a_kustomization_is_refused_with_the_command_to_use(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("apply", "-f", "https://example.org/pod.yaml")
    assert result.exit_code == 2
    assert "curl -fsSL https://example.org/pod.yaml | kubeletx COMMAND -f -" in result.stderr
    result = kubeletx("apply", "-k", "overlays/lab")
    assert result.exit_code == 2
    assert "use 'kubectl kustomize overlays/lab | kubeletx apply -f -'" in result.stderr
