"""What stands in deploy/ fits the program: flags, settings, metrics, paths; and the manifests hang together."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import BY_FLAG, AgentConfig
from kubeletx.cli.commands.node.setup import setup
from kubeletx.cli.commands.node.ui import ui
from kubeletx.health.main import main as health
from kubeletx.health.model import TICK_SECONDS
from kubeletx.kube.client import load_kubeconfig
from kubeletx.server.backend import AdminBackend
from kubeletx.server.kubelet.readonly import readonly_routes
from kubeletx.server.metrics.figures import FiguresSource
from tests.unit.docs.pages import DOCS, ROOT

DEPLOY = ROOT / "deploy"
TRIAL = DEPLOY / "trial" / "kubeletx-trial.yaml"
STORAGE = DEPLOY / "storage"
GUARDIAN = "kubeletx-health.service"
"""Files for another program: plugins/flexvolume/tests/attachments/test_deploy.py."""
GLOBAL_FLAGS = {"help", "root-dir", "config", "config-dir"}
FLAGS_OF_SETUP = {
    option.removeprefix("--") for command in (setup, ui) for param in command.params for option in param.opts
}
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
METRIC = re.compile(r"\b((?:kubelet|kubeletx|container|node|process)_[a-z_]+)\b")
OF_THE_CLIENT = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
"""prometheus-client's own."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def trial(kind: str, name: str = "kubeletx-trial") -> dict[str, Any]:
    (found,) = [one for one in documents(TRIAL) if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def trial_config(tmp_path: Path) -> AgentConfig:
    path = tmp_path / "config.yaml"
    path.write_text(trial("ConfigMap")["data"]["config.yaml"])
    flags: dict[str, tuple[str, ...]] = {}
    for argument in container()["args"]:
        name, _, value = argument.removeprefix("--").partition("=")
        if name not in GLOBAL_FLAGS:
            flags[name] = (value.replace("$(HOST_NODE)", "one").replace("$(POD_IP)", "192.0.2.1"),)
    return load_config(config_file=path, flags=flags)


def container() -> dict[str, Any]:
    (one,) = trial("DaemonSet")["spec"]["template"]["spec"]["containers"]
    return dict(one)


def unit(name: str = "kubeletx.service") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text())
    return parser


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: path.name)
def test_every_object_is_whole_and_named_once(path: Path) -> None:
    found = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in documents(path)]
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "path",
    [
        *sorted(
            p
            for p in DEPLOY.rglob("*")
            if p.is_file()
            and p.suffix not in {".json", ".cfg"}
            and STORAGE not in p.parents
            and p.name not in (GUARDIAN, "remedy.yaml")  # test_remedy_deploy.py
        ),
        DOCS / "install.md",
    ],
    ids=lambda path: path.name,
)
def test_every_flag_of_ours_exists(path: Path) -> None:
    lines = [
        line
        for line in path.read_text().splitlines()
        if not re.search(r"kubectl|systemctl|docker|apt|pip|mount|tini|script/package|COPY", line)
    ]
    given = set(FLAG.findall("\n".join(lines)))
    assert given - BY_FLAG.keys() - GLOBAL_FLAGS - FLAGS_OF_SETUP == set()


def test_the_service_is_notified_and_leaves_pods_alone() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert int(service["TimeoutStartSec"]) > 90, "a busy machine takes longer at boot"
    assert (service["KillMode"], service["Delegate"], service["RestartPreventExitStatus"]) == (
        "process",
        "yes",
        "2",
    )
    assert service["ExecStart"].split()[1:] == ["--config", "/etc/kubeletx/config.yaml"]


def test_the_guardian_starts_before_all_that_may_fail() -> None:
    parts = unit(GUARDIAN)
    assert (parts["Unit"]["DefaultDependencies"], "Requires" in parts["Unit"]) == ("no", False)
    assert "network-pre.target" in parts["Unit"]["Before"]
    assert (parts["Service"]["Type"], int(parts["Service"]["WatchdogSec"]) > 2 * TICK_SECONDS) == (
        "notify",
        True,
    )


def test_the_flags_of_the_guardian_s_unit_exist(capsys: pytest.CaptureFixture[str]) -> None:
    flags = set(re.findall(r"--[a-z-]+", (DEPLOY / "systemd" / GUARDIAN).read_text()))
    with pytest.raises(SystemExit):
        health(["--help"])
    assert flags - set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) == set()


def test_the_trials_configuration_is_taken_whole(tmp_path: Path) -> None:
    config = trial_config(tmp_path)
    assert config.unused == ()
    assert config.node.labels == {"kubeletx.io/trial": "true"}
    assert config.node.hostname_override == "trial-one"
    assert [one.key for one in config.cluster.register_with_taints] == ["kubeletx.io/trial"]


def test_the_trial_shares_nothing_with_a_kubelet(tmp_path: Path) -> None:
    config = trial_config(tmp_path)
    pod = trial("DaemonSet")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all("hostPath" not in volume for volume in pod["volumes"])
    assert config.cgroups.root not in ("", "/")
    kubelets = ("/var/lib/kubelet/", "/var/log/pods", "/run/containerd/")
    ours = [str(config.logs.pod_logs_dir), *(one.text for one in config.runtimes.endpoints)]
    assert not [text for text in ours if any(path in text for path in kubelets)]


def test_the_trial_never_runs_on_its_own_nodes(tmp_path: Path) -> None:
    affinity = trial("DaemonSet")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (label,) = trial_config(tmp_path).node.labels
    assert {"key": label, "operator": "DoesNotExist"} in term["matchExpressions"]


def test_paths_of_the_trial_lead_somewhere(tmp_path: Path) -> None:
    config, mounts = trial_config(tmp_path), container()["volumeMounts"]
    data = trial("ConfigMap")["data"]
    places = [one["mountPath"] for one in mounts]
    assert str(config.cluster.bootstrap_kubeconfig) == "/etc/kubeletx-trial/bootstrap.kubeconfig"
    for text in (
        str(config.cluster.kubeconfig),
        str(config.logs.pod_logs_dir),
        *re.findall(r'"(/\S+)"', data["containerd.toml"]),
    ):
        assert text.startswith("/usr/lib/cni") or any(text.startswith(place) for place in places), text
    assert any(
        one.text.endswith("unix:///run/kubeletx-trial/containerd.sock") for one in config.runtimes.endpoints
    )
    json.loads(trial("ConfigMap", "kubeletx-trial-cni")["data"]["10-trial.conflist"])


def test_the_trials_bootstrap_kubeconfig_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.kubeconfig"
    path.write_text(trial("ConfigMap")["data"]["bootstrap.kubeconfig"])
    access = load_kubeconfig(path)
    assert access.server == "https://kubernetes.default.svc"
    assert access.token_file is not None


def test_the_taints_identity_may_patch_nodes_and_nothing_else() -> None:
    (role,) = [one for one in documents(DEPLOY / "taints.yaml") if one["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana" / "kubeletx-node.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    words = {word for word in asked if word not in ("container_state",)}
    source = "\n".join(path.read_text() for path in (ROOT / "kubeletx").rglob("*.py"))
    missing = [
        name
        for name in sorted(words - OF_THE_CLIENT)
        if f'"{name}"' not in source
        and f'"{name.removesuffix("_total").removesuffix("_bucket")}"' not in source
    ]
    assert missing == []
    assert len(words) > 15


def test_the_dashboard_works_with_any_name_of_the_scrape_job() -> None:
    board = json.loads((DEPLOY / "grafana" / "kubeletx-node.json").read_text())
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables["job"]["query"]["query"] == "label_values(kubeletx_runtime_ready, job)"
    assert 'job=~"$job"' in variables["instance"]["query"]["query"]
    for panel in board["panels"]:
        for target in panel["targets"]:
            selectors = re.findall(r"\{(\w+[=!][^}]*)\}", target["expr"])
            assert len(selectors) == len(METRIC.findall(target["expr"])) - target["expr"].count(
                "container_state"
            )
            assert all(one.startswith('job=~"$job", instance=~"$instance"') for one in selectors)


def test_the_page_scrapes_the_metrics_of_the_read_only_port() -> None:
    (block,) = re.findall(r"```yaml\n( *scrape_configs:.*?)```", (DOCS / "run.md").read_text(), re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    scraped = [one["labels"] for one in job["static_configs"]]
    routes = readonly_routes(
        cast(AdminBackend, SimpleNamespace(pods=None, about=None)), cast(FiguresSource, None)
    )
    assert {labels["__metrics_path__"] for labels in scraped} <= {route.path for route in routes}
    assert all(labels["metrics_path"] == labels["__metrics_path__"] for labels in scraped)


def test_panels_of_the_dashboard_do_not_lie_upon_each_other() -> None:
    board = json.loads((DEPLOY / "grafana" / "kubeletx-node.json").read_text())
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_configurations_of_the_page_are_taken_whole(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "install.md").read_text(), re.DOTALL)
    configs = [block for block in blocks if "KubeletConfiguration" in block]
    assert len(configs) == 2
    for number, block in enumerate(configs):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        assert load_config(config_file=path).unused == ()


@pytest.mark.parametrize(
    ("resolv_conf", "flags"),
    [
        (
            "search trial.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
            ["--cluster-dns=10.96.0.10", "--cluster-domain=cluster.local"],
        ),
        (
            "nameserver 10.96.0.10\nnameserver fd00::a\nsearch trial.svc.my.domain\n",
            ["--cluster-dns=10.96.0.10,fd00::a", "--cluster-domain=my.domain"],
        ),
        ("nameserver 192.0.2.53\nsearch example.com\n", []),
        ("", []),
    ],
)
def test_the_trial_gives_its_pods_the_dns_that_it_was_given_itself(
    tmp_path: Path, resolv_conf: str, flags: list[str]
) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(resolv_conf)
    script = DEPLOY / "trial" / "dns-flags.sh"
    printed = subprocess.run(["sh", script, path], check=True, capture_output=True, text=True).stdout.split()
    assert printed == flags
    assert {flag.partition("=")[0].removeprefix("--") for flag in flags} <= BY_FLAG.keys()
