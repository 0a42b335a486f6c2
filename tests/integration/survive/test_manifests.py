"""Bad manifests in front of a running agent: one clear line each, nothing else happens, fixing is enough."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api.names import MANIFEST_VALID
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.survival import JSON, condition, events, life, log_lines, logged, traces, until

MakeAgent = Callable[..., PrivateAgent]
CORPUS = Path(__file__).parents[2] / "unit" / "static" / "bad_manifests"
LINE = re.compile(r"(?P<file>/\S+)( \([a-z]+ [^)]*\))?: .+; .+")
"""File, object if there is one, field with what was found, and what to do."""


@pytest.fixture
def json_agent(make_agent: MakeAgent) -> PrivateAgent:
    agent = make_agent(flags=(JSON,))
    agent.start()
    return agent


def refused(agent: PrivateAgent) -> dict[str, list[str]]:
    """File name to what was said about it."""
    found: dict[str, list[str]] = {}
    for line in log_lines(agent):
        if line["level"] in ("warning", "error") and (match := LINE.fullmatch(line.get("err", ""))):
            found.setdefault(Path(match["file"]).name, []).append(line["err"])
    return found


def test_each_bad_manifest_gets_one_line_and_is_taken_once_it_is_fixed(
    json_agent: PrivateAgent, manifests: Path
) -> None:
    agent = json_agent
    put_manifest(manifests, pod_manifest("good"))
    before = agent.wait_for("good")
    bad = sorted(path.name for path in CORPUS.iterdir())
    for name in bad:
        put_manifest(manifests, (CORPUS / name).read_bytes(), name=name)
    put_manifest(manifests, b"#" * 11_000_000, name="huge.yaml")
    wanted = {*bad, "huge.yaml"}
    until(lambda: set(refused(agent)) == wanted, "a line for each bad manifest")
    put_manifest(manifests, pod_manifest("marker"))
    agent.wait_for("marker")
    assert {name: len(said) for name, said in refused(agent).items()} == dict.fromkeys(wanted, 1)
    assert {pod.name for pod in agent.pods()} == {"good-lab", "marker-lab"}
    assert [one for one in events(agent) if one["reason"] == "FailedValidation"]
    for number, name in enumerate(sorted(wanted)):
        if number % 8:  # a part of them is enough to be sure
            (manifests / name).unlink()
        else:
            put_manifest(manifests, pod_manifest(f"fixed-{number}"), name=name)
    fixed = [f"fixed-{number}" for number in range(0, len(wanted), 8)]
    for name in fixed:
        agent.wait_for(name, timeout_seconds=60)
    assert life(agent.wait_for("good")) == life(before)
    assert {pod.name for pod in agent.pods()} == {f"{name}-lab" for name in ("good", "marker", *fixed)}
    assert {name: len(said) for name, said in refused(agent).items()} == dict.fromkeys(wanted, 1)
    assert traces(agent, pods=agent.pods()) == []


def test_a_manifest_that_turns_bad_keeps_its_pod_which_says_so_even_over_a_restart(
    json_agent: PrivateAgent, manifests: Path
) -> None:
    agent = json_agent
    good = pod_manifest("turning")
    put_manifest(manifests, good)
    before = agent.wait_for("turning")
    broken = json.dumps(good).replace('"containers"', '"containres"').encode()
    put_manifest(manifests, broken, name="turning.json")
    shown = agent.wait_for("turning", lambda pod: condition(pod, MANIFEST_VALID) == "False")
    assert life(shown) == life(before)
    agent.kill()
    agent.start()
    shown = agent.wait_for("turning", lambda pod: condition(pod, MANIFEST_VALID) == "False")
    assert life(shown) == life(before)
    put_manifest(manifests, good)
    after = agent.wait_for("turning", lambda pod: condition(pod, MANIFEST_VALID) != "False")
    assert life(after) == life(before)
    put_manifest(manifests, broken, name="turning.json")
    agent.wait_for("turning", lambda pod: condition(pod, MANIFEST_VALID) == "False")
    (manifests / "turning.json").unlink()
    agent.wait_gone("turning")
    assert traces(agent) == []


def test_of_two_files_with_one_pod_name_the_first_wins_until_it_goes(
    json_agent: PrivateAgent, manifests: Path
) -> None:
    agent = json_agent
    first = put_manifest(manifests, pod_manifest("twin", runtime="containerd-a"), name="a.json")
    before = agent.wait_for("twin")
    put_manifest(manifests, pod_manifest("twin", runtime="containerd-b"), name="b.json")
    until(lambda: len(refused(agent).get("b.json", ())) == 1, "the second file is refused")
    assert life(agent.wait_for("twin")) == life(before)
    first.unlink()
    agent.wait_for("twin", lambda pod: pod.uid != before.uid and pod.status.phase == "Running")
    assert not logged(agent, "Action failed with a bug")
