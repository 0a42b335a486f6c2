"""deploy/remedy.yaml fits the program: flags, ports, identity; its dashboard asks for metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kubeletx.remedy.admin.metrics import RemedyMetrics, parse_address
from kubeletx.remedy.main import parse
from kubeletx.remedy.model import RemedySettings
from tests.unit.docs.pages import ROOT

DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy/remedy.yaml").read_text()))
BOARD = json.loads((ROOT / "deploy/grafana/kubeletx-remedy.json").read_text())


def the(kind: str, name: str = "kubeletx-remedy") -> dict[str, Any]:
    (found,) = [one for one in DOCUMENTS if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def test_flags_and_ports_of_the_deployment_fit() -> None:
    pod = the("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = parse(container["args"])
    assert container["command"] == ["kubeletx", "remedy"]
    assert (options.namespace, options.leader_elect) == (the("Deployment")["metadata"]["namespace"], True)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert parse_address(options.metrics_address) == ("", ports["metrics"])
    assert options.kdump_port == ports["kdump"]
    assert "NODE_NAME" in {one["name"] for one in container["env"]}
    assert pod["serviceAccountName"] == the("ServiceAccount")["metadata"]["name"]


def test_each_binding_names_a_role_and_the_service_account() -> None:
    bindings = [one for one in DOCUMENTS if one["kind"].endswith("Binding")]
    account = {
        "kind": "ServiceAccount",
        **{key: the("ServiceAccount")["metadata"][key] for key in ("name", "namespace")},
    }
    for one in bindings:
        assert the(one["roleRef"]["kind"], one["roleRef"]["name"])
        assert one["subjects"] == [account]
    assert len(bindings) == len([one for one in DOCUMENTS if one["kind"].endswith("Role")])


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    made = RemedyMetrics(
        fences=dict,
        settings=RemedySettings,
        now=lambda: None,  # type: ignore[arg-type,return-value]  # the metrics are not asked for values
        leads=bool,
        problem=str,
        configuration_problems=int,
    )
    asked = {
        name
        for panel in BOARD["panels"]
        for target in panel["targets"]
        for name in re.findall(r"kubeletx_remedy_[a-z_]+", target["expr"])
    }
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} == {one.name for one in made.metrics}
    places = [
        (panel["gridPos"]["x"] + i, panel["gridPos"]["y"] + j)
        for panel in BOARD["panels"]
        for i in range(panel["gridPos"]["w"])
        for j in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "panels do not cover each other"
    assert max(x for x, _ in places) < 24
