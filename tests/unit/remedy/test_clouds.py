"""Templates in deploy/remedy: of clouds, with the exchange of each agent's standard input and answer, and of switches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from kubeletx.remedy.actions.agent import AGENTS_DIRECTORY, FenceAgents
from kubeletx.remedy.fence_config import FenceMaps, place_of
from kubeletx.remedy.model import (
    FenceOperation,
    FenceProof,
    FlowStep,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyCourse,
    RemedyTask,
)
from tests.unit.remedy.config_values import FENCED, fence, loaded, node, problems

DEPLOY = Path(__file__).parents[3] / "deploy/remedy"
AZURE = "subscriptions/sub-1/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/worker-1"
CLOUDS: dict[str, tuple[str, dict[str, bytes]]] = {
    "aws": ("aws:///eu-west-1a/i-0abc1234", {"access_key": b"AKIA0", "secret_key": b"a+b/c="}),
    "gce": ("gce://project-1/europe-west1-b/worker-1", {"serviceaccount": b'{"type": "service_account"}\n'}),
    "openstack": (
        "openstack:///4a1c0e6e-0000-4000-8000-000000000001",
        {
            "auth_url": b"https://keystone.example:5000/v3",
            "project_name": b"nodes",
            "username": b"fence",
            "password": b"word",
        },
    ),
    "azure": (f"azure:///{AZURE}", {"tenantId": b"tenant-1", "username": b"app-1", "password": b"word"}),
    "vsphere": (
        "vsphere://4237a6a1-0000-4000-8000-000000000002",
        {"ip": b"vcenter.example", "username": b"fence@vsphere.local", "password": b'"word"'},
    ),
}
PLAYBACK = """#!/bin/sh
input=$(cat)
if [ "$input" = action=metadata ]; then echo action=metadata | exec {agent}; fi
input=$(echo "$input" | sed 's#=/proc/.*#=FILE#')
for exchange in {directory}/*.in; do
    if [ "$input" = "$(cat $exchange)" ]; then cat ${{exchange%in}}out; exit; fi
done
echo "not recorded: $input" >&2
exit 1
"""


def maps_of(cloud: str) -> dict[str, Mapping[str, str]]:
    documents = yaml.safe_load_all((DEPLOY / f"{cloud}.yaml").read_text())
    return {document["metadata"]["name"]: document["data"] for document in documents}


def play(directory: Path, cloud: str, agent: str) -> None:
    """Write an agent that gives the recorded answers. Lines with ``>`` are its input, with ``<`` its output."""
    for number, exchange in enumerate((DEPLOY / f"exchanges/{cloud}.txt").read_text().split("\n\n")):
        for mark, name in ((">", "in"), ("<", "out")):
            lines = [line[2:] for line in exchange.splitlines() if line.startswith(f"{mark} ")]
            (directory / f"{number}.{name}").write_text("\n".join(lines))
    path = directory / agent
    path.write_text(PLAYBACK.format(agent=AGENTS_DIRECTORY / agent, directory=directory))
    path.chmod(0o755)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_an_instance_is_restarted_as_recorded(cloud: str, tmp_path: Path) -> None:
    provider_id, secret = CLOUDS[cloud]
    worker = node("worker-1", provider_id=provider_id)
    method = restart_instance(worker, maps_of(cloud)).power[0]
    play(tmp_path, cloud, method.agent)

    async def read(name: str) -> Mapping[str, bytes]:
        return {f"secret-fence-{cloud}": secret}[name]

    outcome = await FenceAgents(directory=tmp_path, read_secret=read, pause_seconds=0).run(
        RemedyTask(
            node=worker,
            fence=NodeFence(node="worker-1"),
            step=FlowStep.POWER,
            method=method,
            operation=FenceOperation(id="1"),
        )
    )
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,)), outcome.message
    assert "ignores" not in outcome.message


@pytest.mark.parametrize("cloud", CLOUDS)
def test_templates_add_to_the_default_and_change_nothing(cloud: str) -> None:
    worker = node("worker-1", provider_id=CLOUDS[cloud][0])
    default = dict(restart_instance(worker, {}).power[0].parameters)
    template = restart_instance(worker, maps_of(cloud)).power[0].parameters
    assert {key: template[key] for key in default} == default


SWITCHES = {"network": ({"community": "word"}, 1), "detach": ({"username": "fence", "password": "word"}, 2)}


@pytest.mark.parametrize("switch", SWITCHES)
async def test_switches_cut_storage_off_with_parameters_that_their_agents_have(switch: str) -> None:
    secret, paths = SWITCHES[switch]
    of = loaded(FENCED, maps_of(switch))
    assert (problems(of), of.notes) == ([], ())
    course = fence(of, node("worker-1"))
    cuts = [method for method in course.isolation if method.kind == "agent"]
    assert [one.proof for one in cuts] == [FenceProof.STORAGE] * paths
    for method in (*cuts, *(one for one in course.recovery if one.kind == "agent")):
        metadata = await FenceAgents().metadata(method.agent)
        assert metadata.is_fabric
        assert metadata.action(method.parameters) == method.parameters["action"]
        assert metadata.arguments({**method.parameters, **secret})[1] == ()


def restart_instance(worker: NodeView, maps: Mapping[str, Mapping[str, str]]) -> RemedyCourse:
    return FenceMaps(maps, {}, {}).resolve(place_of(worker))
