"""The configuration: one table, strict reading, every mistake at once, origins."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.agent.config.kinds import Duration
from kubeletx.agent.config.kubelet_options import OPTION_BY_FIELD, OPTION_BY_FLAG
from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import (
    BY_FLAG,
    BY_KEY,
    ENDPOINT_KEYS,
    SETTINGS,
    AgentConfig,
    EndpointText,
    Setting,
)
from kubeletx.agent.config.view import effective_values
from kubeletx.api import InvalidConfig
from kubeletx.kube.text.duration import format_duration, parse_duration
from kubeletx.runtimes.endpoints.problems import InvalidConfigs

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def write(path: Path, text: str) -> Path:
    path.write_text(HEADER + text)
    return path


def test_without_anything_the_kubelets_defaults_hold() -> None:
    config = load_config()
    assert config == AgentConfig()
    assert config.node.max_pods == 110
    assert config.runtimes.request_timeout_seconds == 120
    assert config.server.healthz_port == 10248
    assert config.socket_path == Path("/var/lib/kubeletx/kubeletx.sock")


def test_keys_and_flags_are_used_once_and_apart_from_the_kubelets_others() -> None:
    assert len(BY_KEY) == len([s for s in SETTINGS if s.key])
    assert len(BY_FLAG) == len([s for s in SETTINGS if s.flag])
    assert not set(BY_KEY) & set(OPTION_BY_FIELD)
    assert not set(BY_FLAG) & set(OPTION_BY_FLAG)


def test_defaults_can_be_written_and_read_again() -> None:
    config = AgentConfig()
    for setting in SETTINGS:
        value = operator.attrgetter(setting.path)(config)
        shown = setting.kind.show(value)
        if shown not in ("", None):
            assert setting.kind.from_file(shown) == value, setting.path


def test_a_duration_of_zero_that_means_unset_is_the_default(tmp_path: Path) -> None:
    drop_ins = tmp_path / "conf.d"
    drop_ins.mkdir()
    write(drop_ins / "1.conf", "syncFrequency: 0s\n")
    config = load_config(config_file=write(tmp_path / "c.yaml", "syncFrequency: 5s\n"), config_dir=drop_ins)
    assert (config.pods.sync_seconds, config.origins) == (60, {})


def test_flags_win_over_drop_ins_which_win_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "config.yaml", "maxPods: 1\npodsPerCore: 1\nsyncFrequency: 5s\n")
    drop_ins = tmp_path / "conf.d"
    drop_ins.mkdir()
    write(drop_ins / "20.conf", "podsPerCore: 3\nmaxPods: 3\n")
    write(drop_ins / "10.conf", "podsPerCore: 2\n")
    write(drop_ins / "30.yaml", "podsPerCore: 99\n")
    config = load_config(config_file=file, config_dir=drop_ins, flags={"max-pods": ["4"]})
    assert (config.node.max_pods, config.node.pods_per_core, config.pods.sync_seconds) == (4, 3, 5.0)
    assert config.origins["node.max_pods"] == "flag --max-pods"
    assert config.origins["node.pods_per_core"] == str(drop_ins / "20.conf")
    assert config.origins["pods.sync_seconds"] == str(file)


def test_drop_ins_of_subdirectories_are_read_at_their_place(tmp_path: Path) -> None:
    for name, text in {
        "10.conf": "maxPods: 1\npodsPerCore: 1\n",
        "20/5.conf": "maxPods: 2\npodsPerCore: 2\n",
        "20/9.yaml": "maxPods: 9\n",
        "30.conf": "podsPerCore: 3\n",
        "..data/99.conf": "maxPods: 9\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, text)
    (tmp_path / "99").symlink_to(tmp_path / "..data")
    config = load_config(config_dir=tmp_path)
    assert (config.node.max_pods, config.node.pods_per_core) == (2, 3)
    assert config.origins["node.max_pods"] == str(tmp_path / "20" / "5.conf")


def test_maps_of_files_are_merged_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path / "config.yaml", "kubeReserved: {cpu: 100m, memory: 1Gi}\n")
    drop_ins = tmp_path / "conf.d"
    drop_ins.mkdir()
    write(drop_ins / "10.conf", '"kubeReserved": {"cpu": "200m"}')
    config = load_config(config_file=file, config_dir=drop_ins)
    assert config.node.kube_reserved == {"cpu": "200m", "memory": "1Gi"}


def test_all_mistakes_come_at_once_each_with_file_field_and_fix(tmp_path: Path) -> None:
    file = write(
        tmp_path / "config.yaml",
        'maxPods: "7"\nmaxPodz: 3\nlogging: {format: yaml}\nkubeletx: {nodeReadinessPolicy: some}\n',
    )
    with pytest.raises(InvalidConfigs) as caught:
        load_config(config_file=file, flags={"node-ip": ["1.2.3"], "registry-qps": ["many"]})
    assert [str(error) for error in caught.value.errors] == [
        f"{file}: maxPods: '7' is a string; a whole number is expected",
        f"{file}: maxPodz: is not a known field; did you mean maxPods?",
        f"{file}: logging.format: 'yaml' is not known; use one of text, json",
        f"{file}: kubeletx.nodeReadinessPolicy: 'some' is not known; use one of partial, all, primary",
        "--registry-qps: 'many' is not a whole number",
        "--node-ip: '1.2.3' is not an IP address; write it like 10.0.0.10",
    ]


def test_fields_of_the_kubelet_without_effect_are_named_with_their_consequence(tmp_path: Path) -> None:
    file = write(
        tmp_path / "config.yaml",
        "hairpinMode: hairpin-veth\nfeatureGates: {A: true}\nlogging: {flushFrequency: 7s}\n",
    )
    config = load_config(config_file=file)
    assert [item.name for item in config.unused] == [
        "hairpinMode",
        "featureGates",
        "logging.flushFrequency",
    ]
    assert {item.origin for item in config.unused} == {str(file)}
    assert "CNI configuration" in config.unused[0].consequence


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\n")
    with pytest.raises(InvalidConfig, match="use KubeletConfiguration"):
        load_config(config_file=file)


@pytest.mark.parametrize("text", ["a: [1", "- 1\n", "just words"])
def test_what_is_not_a_map_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig):
        load_config(config_file=write(tmp_path / "config.yaml", text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maxPods: 5\nmaxPods: 7\n", "line 4: has the key 'maxPods' twice"),
        ("maxPods: 1:30\n", "maxPods: '1:30' is a string"),
        ("kubeletx: {nodeLabels: {day: 2024-13-45, day: x}}\n", "twice"),
        ("maxPods: 5\n---\nmaxPods: 6\n", "holds 2 documents"),
        ("maxPods: !!python/name:os.system x\n", "has the tag"),
    ],
)
def test_yaml_is_read_as_that_of_manifests(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path / "config.yaml", text)
    with pytest.raises(InvalidConfig) as caught:
        load_config(config_file=file)
    assert f"{file}: " in str(caught.value)
    assert words in str(caught.value)


def test_what_looks_like_a_day_is_a_text(tmp_path: Path) -> None:
    file = write(tmp_path / "config.yaml", "kubeletx: {nodeLabels: {day: 2024-13-45}}\n")
    assert load_config(config_file=file).node.labels == {"day": "2024-13-45"}


@pytest.mark.parametrize(
    ("label", "may"),
    [
        ("example.com/role", True),
        ("plain", True),
        ("node.kubernetes.io/instance-type", True),
        ("kubelet.kubernetes.io/pool", True),
        ("topology.kubernetes.io/zone", True),
        ("node-role.kubernetes.io/worker", False),
        ("node-restriction.kubernetes.io/pool", False),
        ("kubernetes.io/role", False),
        ("x.k8s.io/y", False),
    ],
)
def test_a_node_of_a_cluster_may_not_give_itself_every_label(label: str, may: bool) -> None:
    flags = {"node-labels": [f"{label}=x"]}
    load_config(flags=flags)  # by itself it may
    if may:
        load_config(flags={**flags, "kubeconfig": ["/etc/kubeconfig"]})
        return
    with pytest.raises(InvalidConfig, match=f"--node-labels: {label} is not a label that a node may give"):
        load_config(flags={**flags, "kubeconfig": ["/etc/kubeconfig"]})


@pytest.mark.parametrize(
    "setting",
    [one for one in SETTINGS if one.flag and one.path not in ENDPOINT_KEYS],
    ids=lambda one: one.flag,
)
def test_an_empty_flag_is_its_default_or_refused_by_name(setting: Setting) -> None:
    problem = ""
    try:
        load_config(flags={setting.flag: [""]})
    except InvalidConfig as error:
        problem = str(error)
    assert not problem or f"--{setting.flag}" in problem


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load_config(config_file=tmp_path / "none.yaml")


def test_endpoints_of_flags_come_first_and_keep_their_text(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", 'kubeletx: {containerRuntimeEndpoints: ["vm:b:qemu:///system"]}\n')
    config = load_config(config_file=file, flags={"container-runtime-endpoint": ["a,container,unix:///a"]})
    assert config.runtimes.endpoints == (
        EndpointText(text="a,container,unix:///a", origin="flag --container-runtime-endpoint"),
        EndpointText(
            text="vm:b:qemu:///system", origin=str(file), key="kubeletx.containerRuntimeEndpoints[0]"
        ),
    )


def test_a_flag_replaces_the_kubelets_single_endpoint(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")
    assert [e.text for e in load_config(config_file=file).runtimes.endpoints] == [
        "unix:///run/containerd/containerd.sock"
    ]
    config = load_config(config_file=file, flags={"container-runtime-endpoint": ["container:a:unix:///a"]})
    assert [e.text for e in config.runtimes.endpoints] == ["container:a:unix:///a"]


def test_a_repeated_flag_adds_to_maps_and_lists() -> None:
    config = load_config(
        flags={
            "node-labels": ["a=1,b=2", "b=3"],
            "manifest-url": ["http://x/"],
            "manifest-url-header": ["A:1", "A:2"],
        }
    )
    assert config.node.labels == {"a": "1", "b": "3"}
    assert config.sources.manifest_url_headers == {"A": ("2",)}


def test_header_values_are_never_shown() -> None:
    config = load_config(
        flags={"manifest-url": ["http://x/"], "manifest-url-header": ["Authorization:secret"]}
    )
    assert "secret" not in str(effective_values(config))


def test_hard_eviction_replaces_the_defaults_unless_they_are_merged(tmp_path: Path) -> None:
    text = "evictionHard: {memory.available: 200Mi}\n"
    config = load_config(config_file=write(tmp_path / "a.yaml", text))
    assert config.eviction.hard == {"memory.available": "200Mi"}
    config = load_config(
        config_file=write(tmp_path / "b.yaml", text + "mergeDefaultEvictionSettings: true\n")
    )
    assert config.eviction.hard["memory.available"] == "200Mi"
    assert config.eviction.hard["nodefs.available"] == "10%"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"image-gc-low-threshold": ["90"]}, "below the high threshold"),
        ({"max-parallel-image-pulls": ["3"], "serialize-image-pulls": ["true"]}, "contradicts"),
        ({"cgroup-root": ["a/../b"]}, "absolute cgroup"),
        ({"eviction-hard": ["mem<1"]}, "not a signal"),
        ({"eviction-hard": ["memory.available<x"]}, "not a threshold"),
        ({"system-reserved": ["cpu=x"]}, "not a quantity"),
        ({"kube-reserved": ["disk=1"]}, "cannot be reserved"),
        ({"hostname-override": ["Not_A_Name"]}, "not a node name"),
        ({"node-labels": ["a b=c"]}, "not a label"),
        ({"node-ip": ["10.0.0.1,10.0.0.2"]}, "one family"),
        ({"manifest-url": ["ftp://x"]}, "not an http"),
        ({"read-only-port": ["10248"]}, "health endpoint"),
        ({"runtime-request-timeout": ["5"]}, "not a duration"),
        ({"cpu-cfs-quota-period": ["2s"]}, "between 1ms and 1s"),
    ],
)
def test_rules_between_settings(flags: dict[str, list[str]], word: str) -> None:
    with pytest.raises(InvalidConfig, match=word):
        load_config(flags=flags)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("imagePullCredentialsVerificationPolicy: Sometimes", "use one of NeverVerify"),
        ("preloadedImagesVerificationAllowlist: [r.example/app]", "knows no list"),
        (
            "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n"
            "preloadedImagesVerificationAllowlist: [busybox]",
            "docker.io/library/busybox",
        ),
    ],
)
def test_rules_for_the_verification_of_image_credentials(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises((InvalidConfig, InvalidConfigs), match=word):
        load_config(config_file=write(tmp_path / "kubelet.yaml", text))


def test_a_duration_of_zero_means_the_default_where_a_kubelet_has_one() -> None:
    for setting in SETTINGS:
        if setting.flag and isinstance(setting.kind, Duration) and setting.kind.zero_is_unset:
            config = load_config(flags={setting.flag: ["0"]})
            assert operator.attrgetter(setting.path)(config) == setting.default, setting.path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20s", 20), ("1m30s", 90), ("1.5h", 5400), ("500ms", 0.5), ("0", 0), ("2h45m", 9900)],
)
def test_go_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "s", "1d", "-1s", "1m 30s", "+"])
def test_what_is_not_a_go_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|negative"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**7))
def test_durations_are_shown_as_they_are_read(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


def test_the_view_names_every_setting_and_its_origin(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", "maxPods: 5\nfailSwapOn: false\nhairpinMode: hairpin-veth\n")
    rows = effective_values(load_config(config_file=file, root_dir=tmp_path))
    by_key = {row.key: row for row in rows}
    assert by_key["maxPods"].value == 5
    assert by_key["maxPods"].origin == str(file)
    assert by_key["syncFrequency"].origin == "default"
    assert by_key["failSwapOn"].origin == str(file)
    assert by_key["hairpinMode"].origin == f"{file} (no effect)"
    assert [row.key for row in rows if row.unused] == ["hairpinMode"]
    assert rows[0].origin == "flag --root-dir"
