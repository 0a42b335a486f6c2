"""A kubelet's flags and configuration file, as kubeadm and distributions write them."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubeletx.agent.cluster.member import registration_taints
from kubeletx.agent.config.endpoints import read_endpoints
from kubeletx.agent.config.kinds_kubelet import KubeletOption
from kubeletx.agent.config.kubelet_legacy import LEGACY_OPTIONS
from kubeletx.agent.config.kubelet_options import KUBELET_OPTIONS
from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import AgentConfig, ProcessSettings
from kubeletx.agent.host.pod_cgroups import check_swap, has_swap
from kubeletx.agent.main import apply_process_settings
from kubeletx.api import InvalidConfig
from kubeletx.cli.main import cli
from kubeletx.cli.options.settings import find_socket
from kubeletx.plugins.loading import load_plugins

HEADER = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
KUBEADM_VERSION = re.compile(r"\s*Kubernetes v((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([-\w.+]*)?)\s*")
"""What kubeadm v1.36 takes for the version of a kubelet. Source: cmd/kubeadm/app/preflight/utils.go."""

KUBEADM_FILE = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
"""/var/lib/kubelet/config.yaml as kubeadm writes it: its own choices, and Go's zero values."""

KUBEADM_FLAGS = {
    "bootstrap-kubeconfig": "/etc/kubernetes/bootstrap-kubelet.conf",
    "kubeconfig": "/etc/kubernetes/kubelet.conf",
    "container-runtime-endpoint": "unix:///var/run/containerd/containerd.sock",
    "hostname-override": "worker-1",
    "register-with-taints": "example.com/a=b:NoSchedule",
}
"""Of kubeadm's systemd unit and of kubeadm-flags.env."""

DISTRIBUTIONS = {
    "cloud-provider": "external",
    "fail-swap-on": "false",
    "feature-gates": "NodeSwap=true,KubeletInUserNamespace=false",
    "node-ip": "10.1.2.3",
    "node-labels": "example.com/pool=a",
    "pod-infra-container-image": "example.com/pause:3.10",
    "register-schedulable": "true",
    "runtime-cgroups": "/system.slice/containerd.service",
    "containerd": "/run/k3s/containerd/containerd.sock",
    "volume-plugin-dir": "/var/lib/kubelet/volumeplugins",
    "cgroup-driver": "systemd",
    "read-only-port": "0",
    "eviction-hard": "imagefs.available<5%,nodefs.available<5%",
}

SILENT_FILE = {
    "hairpinMode": "promiscuous-bridge", "makeIPTablesUtilChains": True, "iptablesMasqueradeBit": 14,
    "iptablesDropBit": 15, "nodeStatusMaxImages": 50, "maxOpenFiles": 1000000, "oomScoreAdj": -999,
    "contentType": "application/vnd.kubernetes.protobuf", "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": "10s", "memoryManagerPolicy": "None", "topologyManagerPolicy": "none",
    "topologyManagerScope": "container", "enableControllerAttachDetach": True, "failSwapOn": False,
    "configMapAndSecretChangeDetectionStrategy": "Watch", "enforceNodeAllocatable": ["pods"],
    "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "containerLogMaxWorkers": 1,
    "memoryThrottlingFactor": 0.9, "memoryReservationPolicy": "None", "enableProfilingHandler": True,
    "memorySwap": {"swapBehavior": "NoSwap"}, "featureGates": {}, "tracing": {}, "userNamespaces": {},
    "protectKernelDefaults": False, "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
    "registerNode": True, "seccompDefault": False, "podPidsLimit": -1,
    "logging": {"format": "text", "flushFrequency": "5s", "verbosity": 0},
}  # fmt: skip
"""A kubelet's own defaults, as somebody writes them who copies them from /configz."""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text if text.startswith(("apiVersion", "kind")) else HEADER + text)
    return path


def wrong(option: KubeletOption) -> Any:
    """A value that asks for something."""
    return {
        "Boolean": True not in option.silent,
        "Integer": {"userNamespaces.idsPerPod": 131072}.get(option.field, 7),
        "Choice": getattr(option.kind, "words", ("",))[-1]
        if option.field != "hairpinMode"
        else "hairpin-veth",
        "Fraction": 0.5,
        "Curves": [29],
        "Modules": [{"filePattern": "a", "verbosity": 1}],
        "Opaque": "7s" if option.flag.endswith(("frequency", "period", "duration")) else "other",
        "Pairs": {"a": "b"},
        "Switches": {"A": True},
        "Items": ["a"],
    }.get(type(option.kind).__name__, "other")


def as_flag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(one if isinstance(one, str) else "=".join(map(str, one.values())) for one in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={as_flag(one)}" for key, one in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_file(tmp_path: Path, field: str, value: Any) -> Path:
    for name in reversed(field.split(".")):
        value = {name: value}
    return write(tmp_path, yaml.safe_dump(value))


def treatment(**sources: Any) -> tuple[str, str]:
    """What is done with the only setting: refused, warned or silent; and the words."""
    try:
        config = load_config(**sources)
    except InvalidConfig as error:
        return "refused", str(error).partition(": ")[2].rpartition("; ")[2]
    return ("warned", config.unused[0].consequence) if config.unused else ("silent", "")


@pytest.mark.parametrize(
    "option",
    [
        one
        for one in (*KUBELET_OPTIONS, *LEGACY_OPTIONS)
        if one.silent != (True, False)
        and not one.field.startswith("logging.options.")
        and one.field != "systemCgroups"
    ],
    ids=lambda one: one.field or one.flag,
)
def test_a_flag_and_its_field_are_treated_the_same(option: KubeletOption, tmp_path: Path) -> None:
    value = wrong(option)
    found = []
    if option.field:
        found.append(treatment(config_file=as_file(tmp_path, option.field, value)))
    if option.flag:
        found.append(treatment(flags={option.flag: [as_flag(value)]}))
    expected = "refused" if option.refused else "warned"
    assert {kind for kind, _ in found} == {expected}
    assert all(words in (option.fix or option.words) for _, words in found)
    assert all(words for _, words in found)


@pytest.mark.parametrize("option", [*KUBELET_OPTIONS, *LEGACY_OPTIONS], ids=lambda one: one.field or one.flag)
def test_values_that_ask_for_nothing_are_accepted_in_silence(option: KubeletOption, tmp_path: Path) -> None:
    for value in option.silent:
        if option.field:
            assert treatment(config_file=as_file(tmp_path, option.field, value)) == ("silent", "")
        if option.flag and (isinstance(value, str) or type(option.kind).__name__ != "Opaque"):
            assert treatment(flags={option.flag: [as_flag(value)]}) == ("silent", "")


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("cpuManagerPolicy", "static", "cpu-manager-policy"),
        ("topologyManagerPolicy", "single-numa-node", "topology-manager-policy"),
        ("memoryManagerPolicy", "Static", "memory-manager-policy"),
        ("reservedSystemCPUs", "0-1", "reserved-cpus"),
    ],
)
def test_policies_that_would_do_nothing_are_refused_in_the_file_as_on_the_command_line(
    field: str, value: str, flag: str, tmp_path: Path
) -> None:
    file = write(tmp_path, f"{field}: '{value}'\n")
    with pytest.raises(InvalidConfig) as of_file:
        load_config(config_file=file)
    with pytest.raises(InvalidConfig) as of_flag:
        load_config(flags={flag: [value]})
    assert str(of_file.value) == f"{file}: {field}: " + str(of_flag.value).removeprefix(f"--{flag}: ")
    assert f"'{value}' is not supported; kubeletx " in str(of_flag.value)


def test_a_later_file_may_take_back_what_an_earlier_one_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path, "featureGates: {A: true}\nhairpinMode: hairpin-veth\n")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1.conf").write_text(HEADER + "featureGates: {}\n")
    config = load_config(config_file=file, config_dir=tmp_path / "conf.d", flags={"hairpin-mode": ["none"]})
    assert config.unused == ()


def test_a_later_file_may_take_back_what_the_agent_would_refuse(tmp_path: Path) -> None:
    file = write(tmp_path, "cpuManagerPolicy: static\nrunOnce: true\n")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1.conf").write_text(HEADER + "cpuManagerPolicy: none\n")
    config = load_config(config_file=file, config_dir=tmp_path / "conf.d", flags={"runonce": ["false"]})
    assert config.unused == ()
    (tmp_path / "conf.d" / "2.conf").write_text(HEADER + "cpuManagerPolicy: static\n")
    with pytest.raises(InvalidConfig, match=r"2\.conf: cpuManagerPolicy: 'static' is not supported") as error:
        load_config(config_file=file, config_dir=tmp_path / "conf.d", flags={"runonce": ["false"]})
    assert str(file) not in str(error.value)


def test_the_file_that_kubeadm_writes_is_accepted_whole_and_in_silence(tmp_path: Path) -> None:
    config = load_config(config_file=write(tmp_path, KUBEADM_FILE), as_kubelet=True)
    assert config.unused == ()
    assert config.root_dir == Path("/var/lib/kubelet")
    assert config.sources.pod_manifest_path == Path("/etc/kubernetes/manifests")
    assert config.auth.client_ca_file == Path("/etc/kubernetes/pki/ca.crt")
    assert config.cgroups.driver == "systemd"
    assert config.cluster.rotate_certificates
    assert config.network.cluster_dns == ("10.96.0.10",)
    assert config.runtimes.request_timeout_seconds == 120
    assert config.node.status_update_seconds == 10


def test_a_kubelets_defaults_are_accepted_in_silence(tmp_path: Path) -> None:
    config = load_config(config_file=write(tmp_path, HEADER + yaml.safe_dump(SILENT_FILE)))
    assert config.unused == ()


def test_the_flags_of_kubeadm_are_carried_out(tmp_path: Path) -> None:
    flags = {name: [value] for name, value in KUBEADM_FLAGS.items()}
    config = load_config(flags=flags, as_kubelet=True)
    assert config.unused == ()
    assert config.node.hostname_override == "worker-1"
    assert [one.key for one in config.cluster.register_with_taints] == ["example.com/a"]
    (endpoint,) = read_endpoints(config, load_plugins().kinds)
    assert (endpoint.workload_type, endpoint.url) == (
        "container",
        "unix:///var/run/containerd/containerd.sock",
    )


def test_the_flags_of_distributions_are_accepted_and_each_without_effect_names_its_consequence() -> None:
    config = load_config(flags={name: [value] for name, value in DISTRIBUTIONS.items()})
    assert config.node.cloud_provider == "external"
    assert {one.name for one in config.unused} == {
        "--feature-gates",
        "--pod-infra-container-image",
        "--runtime-cgroups",
        "--containerd",
    }
    assert str(config.volumes.plugin_dir) == "/var/lib/kubelet/volumeplugins"
    assert all(one.consequence for one in config.unused)


def test_no_flag_of_a_kubelet_is_refused_for_the_want_of_an_api_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "false")  # which the command line sets for its process
    for arguments in (["--pod-cidr=10.0.0.0/8", "--max-pods=0"], ["--node-lease-duration-seconds=40"]):
        result = CliRunner().invoke(cli, arguments, prog_name="kubeletx")
        assert result.exit_code == 2
        assert "API server" not in result.stderr
    assert "set nodeLeaseDurationSeconds in the --config file" in result.stderr


def test_a_kubelet_by_name_answers_version_as_kubeadm_reads_it(tmp_path: Path) -> None:
    program = tmp_path / "kubelet"
    program.write_text(f"#!{sys.executable}\nfrom kubeletx.cli.main import main\nmain()\n")
    program.chmod(0o755)
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert KUBEADM_VERSION.fullmatch(done.stdout)
    assert done.stderr == ""


def test_a_kubelet_by_flag_answers_version_as_kubeadm_reads_it_wherever_the_flag_stands() -> None:
    for arguments in (["--as-kubelet", "--version"], ["--version", "--as-kubelet"]):
        result = CliRunner().invoke(cli, arguments, prog_name="kubeletx")
        assert KUBEADM_VERSION.fullmatch(result.stdout)
    assert CliRunner().invoke(cli, ["--version"], prog_name="kubeletx").stdout.startswith("kubeletx ")


def test_the_command_line_finds_an_agent_that_runs_as_the_kubelet(tmp_path: Path) -> None:
    own, kubelet = tmp_path / "kubeletx", tmp_path / "kubelet"
    find = partial(find_socket, own=own, kubelet=kubelet)
    assert find(None) == own / "kubeletx.sock"
    kubelet.mkdir()
    (kubelet / "kubeletx.sock").touch()
    assert find(None) == kubelet / "kubeletx.sock"
    own.mkdir()
    (own / "kubeletx.sock").touch()
    assert find(None) == own / "kubeletx.sock"
    assert find(None, as_kubelet=True) == kubelet / "kubeletx.sock"
    assert find(tmp_path, as_kubelet=True) == tmp_path / "kubeletx.sock"


def test_as_the_kubelet_the_process_is_protected_as_a_kubelets(tmp_path: Path) -> None:
    config = load_config(as_kubelet=True)
    assert config.process == ProcessSettings(oom_score_adj=-999, max_open_files=1_000_000)
    assert load_config().process == AgentConfig().process == ProcessSettings()
    score = tmp_path / "oom_score_adj"
    apply_process_settings(ProcessSettings(oom_score_adj=-7), score)
    assert score.read_text() == "-7\n"
    code = (
        "import resource\n"
        "from kubeletx.agent.config.tree import ProcessSettings\n"
        "from kubeletx.agent.main import apply_process_settings\n"
        "apply_process_settings(ProcessSettings(max_open_files=77))\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "(77, 77)\n"


def test_what_may_not_be_set_of_the_process_stops_nothing(tmp_path: Path) -> None:
    apply_process_settings(ProcessSettings(oom_score_adj=-999), tmp_path / "none" / "oom_score_adj")
    assert not (tmp_path / "none").exists()


def test_swap_is_refused_where_it_was_asked_to_be_and_promised_only_on_cgroup_v2(tmp_path: Path) -> None:
    assert not has_swap(tmp_path / "kernel-without-swap")
    swaps = tmp_path / "swaps"
    swaps.write_text("Filename\tType\tSize\tUsed\tPriority\n")
    refuses = load_config(flags={"fail-swap-on": ["true"]})
    assert not has_swap(swaps)
    check_swap(refuses, 2, is_on=False)
    swaps.write_text(swaps.read_text() + "/swapfile file 1024 0 -2\n")
    assert has_swap(swaps)
    check_swap(load_config(), 1, is_on=True)
    with pytest.raises(InvalidConfig, match="failSwapOn: this machine has swap"):
        check_swap(refuses, 2, is_on=True)
    limited = load_config(config_file=write(tmp_path, "memorySwap: {swapBehavior: LimitedSwap}\n"))
    check_swap(limited, 2, is_on=True)
    with pytest.raises(InvalidConfig, match=r"memorySwap.swapBehavior: 'LimitedSwap' needs cgroup v2"):
        check_swap(limited, 1, is_on=True)


def test_levels_of_enforcement_that_are_not_carried_out_are_named(tmp_path: Path) -> None:
    cgroup = {"system-reserved-cgroup": ["/system.slice"]}
    config = load_config(flags={"enforce-node-allocatable": ["pods,system-reserved"], **cgroup})
    _, unused = config.unused
    assert (unused.name, unused.value) == ("enforceNodeAllocatable", "system-reserved")
    for text, problem in (("pods,all", "'all' is not known"), ("none,pods", "'none' excludes other values")):
        with pytest.raises(InvalidConfig, match=problem):
            load_config(flags={"enforce-node-allocatable": [text]})


def test_another_cloud_provider_than_external_is_refused_as_by_a_kubelet() -> None:
    with pytest.raises(InvalidConfig, match="--cloud-provider: 'aws' is not known; use one of external"):
        load_config(flags={"cloud-provider": ["aws"]})
    assert load_config(flags={"cloud-provider": [""]}).node.cloud_provider is None


def test_a_node_of_an_external_cloud_registers_with_the_taint_that_its_controller_removes() -> None:
    own = {"register-with-taints": ["a=b:NoSchedule"]}
    assert [one.key for one in registration_taints(load_config(flags=own))] == ["a"]
    found = registration_taints(load_config(flags={**own, "cloud-provider": ["external"]}))
    assert [(one.key, one.value, one.effect) for one in found] == [
        ("a", "b", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),
    ]


def test_defaults_follow_other_settings_as_a_kubelets_do(tmp_path: Path) -> None:
    config = load_config(
        config_file=write(tmp_path, "maxParallelImagePulls: 5\nnodeStatusUpdateFrequency: 4s\n")
    )
    assert (config.images.serialize_pulls, config.images.max_parallel_pulls) == (False, 5)
    assert (config.node.status_update_seconds, config.cluster.report_seconds) == (4, 4)
    both = "nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 1m\nmaxParallelImagePulls: 1\n"
    config = load_config(config_file=write(tmp_path, both))
    zeros = "nodeStatusUpdateFrequency: 0s\nnodeStatusReportFrequency: 0s\n"
    assert load_config(config_file=write(tmp_path, zeros)) == AgentConfig()
    zero = "nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 0s\n"
    assert load_config(config_file=write(tmp_path, zero)).cluster.report_seconds == 4
    assert (config.images.serialize_pulls, config.cluster.report_seconds) == (True, 60)
    assert load_config(flags={"node-status-update-frequency": ["4s"]}).cluster.report_seconds == 300
    with pytest.raises(InvalidConfig, match="5 contradicts serialised pulls"):
        load_config(
            config_file=write(tmp_path, "maxParallelImagePulls: 5\n"),
            flags={"serialize-image-pulls": ["true"]},
        )
