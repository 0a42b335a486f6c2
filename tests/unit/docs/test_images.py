"""deploy/docker/Dockerfile: stages, programs, and the manifests and pages that name its targets."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml

from tests.unit.docs.pages import DOCS, ROOT

FILE = ROOT / "deploy" / "docker" / "Dockerfile"
TEXT = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", FILE.read_text()))
STEPS = [line.split(" ", 1) for line in TEXT.splitlines() if line]
STAGES = re.findall(r"(?m)^FROM \S+ AS (\w+)$", TEXT)
TARGETS = set(STAGES) - {"build", "base"}
PODS = {"remedy": "remedy.yaml", "storage": "storage/agent.yaml", "trial": "trial/kubeletx-trial.yaml"}
"""Targets whose image a manifest runs."""


def start_of(target: str) -> list[str]:
    stage = TEXT.partition(f" AS {target}\n")[2].partition("\nFROM ")[0]
    found = re.search(r"(?m)^(?:CMD|ENTRYPOINT) (\[.*\])$", stage)
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def container(target: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy" / PODS[target]).read_text())
    pods = [
        one["spec"]["template"]["spec"]
        for one in documents
        if one and one["kind"] in {"DaemonSet", "Deployment"}
    ]
    (found,) = pods[0]["containers"]
    return dict(found)


def test_every_step_has_a_known_form() -> None:
    assert {word for word, _ in STEPS} <= {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "CMD", "ENTRYPOINT"}
    for word, rest in STEPS:
        if word == "RUN":
            assert shlex.split(rest)[0] in {"apt-get", "python3"}, rest


def test_a_stage_begins_from_the_base_image_or_an_earlier_stage() -> None:
    for number, (origin, name) in enumerate(re.findall(r"(?m)^FROM (\S+) AS (\w+)$", TEXT)):
        assert origin in {"$BASE", *STAGES[:number]}, name
    assert re.findall(r"--from=(\w+)", TEXT) == ["build"]
    assert re.findall(r"(?m)^ARG BASE=(\S+)$", TEXT) == ["debian:bookworm-slim"]


def test_what_is_copied_and_installed_is_in_the_repository() -> None:
    places = re.findall(r"/src(/[\w./]+)", TEXT) + re.findall(r"(?<= )(deploy/\S+)", TEXT)
    assert len(places) == 7
    for place in places:
        assert (ROOT / place.lstrip("/")).exists(), place


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_target_starts_a_program_of_ours(target: str) -> None:
    projects = [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]
    programs = {
        name for one in projects for name in tomllib.loads(one.read_text())["project"].get("scripts", ())
    }
    command = start_of(target)
    assert command[0] in programs or target == "trial"


@pytest.mark.parametrize("target", sorted(PODS))
def test_the_pods_of_a_manifest_run_the_program_of_their_image(target: str) -> None:
    assert container(target)["image"] == f"kubeletx-{target}:latest"
    assert container(target).get("command", start_of(target)) == start_of(target)


def test_every_target_that_a_page_or_manifest_builds_exists() -> None:
    named: set[str] = set()
    for path in [*DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.yaml"), FILE]:
        named |= set(re.findall(r"Dockerfile --target (\w+)", path.read_text()))
    assert named == {"agent", *PODS}
