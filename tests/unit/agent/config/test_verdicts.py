"""A settings file is accepted or refused as by a kubelet: every field with missing, wrong and extreme values.

kubelet-1.36-verdicts.txt beside this file has the expected verdicts. They were recorded from a kubelet v1.36's own
reader of its configuration file, run by hand outside the repository, with what a kubelet refuses later at its start:
eviction thresholds, reserved resources, names of policies, TLS versions and ciphers, sysctls, log sizes. Each group
begins with the names of its fields. Then come values in YAML with their verdict: ``+`` accepted, ``-`` refused, ``!``
accepted by a kubelet but refused here on purpose, ``?`` the other way round. docs/kubelet-parity.md says why. The
values of group ``(together)`` are several lines of one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import AgentConfig
from kubeletx.agent.parts.settings import rotation_limits
from kubeletx.api import InvalidConfig

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
TABLE = Path(__file__).parent / "kubelet-1.36-verdicts.txt"


def body(field: str, value: str) -> str:
    """Return the lines of the file that give the field this value."""
    if field == "(together)":
        return value.replace(" ; ", "\n") + "\n"
    *branches, name = field.split(".")
    lines = [f"{'  ' * depth}{branch}:\n" for depth, branch in enumerate(branches)]
    return "".join(lines) + f"{'  ' * len(branches)}{name}: {'' if value == '(nothing)' else value}\n"


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield sign, field and value of each row of the table."""
    for group in TABLE.read_text(encoding="utf-8").split("\n\n"):
        lines = group.splitlines()
        fields = [name for line in lines if not line.startswith(" ") for name in line.split()]
        for line in lines:
            if line.startswith(" "):
                sign, _, values = line.strip().partition(" ")
                yield from ((sign, field, value) for value in values.split(" | ") for field in fields)


def accepts(path: Path, text: str) -> bool:
    path.write_text(text, encoding="utf-8")
    try:
        load_config(config_file=path)
    except InvalidConfig:
        return False
    return True


def test_each_value_of_each_field_is_judged_as_by_a_kubelet(tmp_path: Path) -> None:
    table = list(rows())
    path = tmp_path / "config.yaml"
    wrong = [
        f"{sign} {field}: {value}"
        for sign, field, value in table
        if accepts(path, HEADER + body(field, value)) is not (sign in "+?")
    ]
    assert wrong == []
    alike = [row for row in table if row[0] in "+-"]
    assert len(table) > 2000
    assert len(alike) / len(table) >= 0.96


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (HEADER, True),
        ("\ufeff" + HEADER, True),
        (HEADER + "---\n", True),
        (HEADER + "maxPods:\t5\n", True),
        (
            '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 5}',
            True,
        ),
        ("", False),
        ("# only a comment\n", False),
        ("null\n", False),
        ("maxPods: 5\n", False),
        ("kind: KubeletConfiguration\n", False),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\n", False),
        ('apiVersion: kubelet.config.k8s.io/v1beta1\nkind: ""\n', False),
        ("apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n", False),
        ("apiVersion: v1\nkind: KubeletConfiguration\n", False),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: kubeletConfiguration\n", False),
        ("- 1\n", False),
        ("word\n", False),
    ],
)
def test_a_file_says_what_it_is(tmp_path: Path, text: str, is_valid: bool) -> None:
    assert accepts(tmp_path / "config.yaml", text) is is_valid


def load(tmp_path: Path, text: str, *drop_ins: str) -> AgentConfig:
    directory = tmp_path / "conf.d"
    directory.mkdir(exist_ok=True)
    for number, drop_in in enumerate(drop_ins):
        (directory / f"{number}.conf").write_text(HEADER + drop_in)
    path = tmp_path / "config.yaml"
    path.write_text(HEADER + text)
    return load_config(config_file=path, config_dir=directory)


def test_an_empty_key_leaves_the_default_and_in_a_drop_in_takes_a_value_back(tmp_path: Path) -> None:
    text = "clusterDNS:\nmaxPods: 5.0\npodsPerCore: 010\ncontainerRuntimeEndpoint: unix:///a\nhairpinMode: none\n"
    text += "syncFrequency: 5s\nauthentication: {anonymous: {enabled: true}}\n"
    drop_in = "podsPerCore:\ncontainerRuntimeEndpoint:\nhairpinMode:\nsyncFrequency:\nauthentication:\n"
    config = load(tmp_path, text, drop_in)
    assert (config.pods.sync_seconds, config.auth.anonymous) == (60, False)
    assert (config.node.max_pods, config.node.pods_per_core) == (5, 0)
    assert (config.network.cluster_dns, config.runtimes.endpoints, config.unused) == ((), (), ())


def test_an_empty_key_that_no_field_has_is_refused_in_a_drop_in_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="maxPodz: is not a known field"):
        load(tmp_path, "", "maxPodz:\n")


def test_zero_means_the_default_where_a_kubelet_has_one(tmp_path: Path) -> None:
    text = "maxPods: 0\nkubeAPIBurst: 0\naddress: ''\ncontainerLogMaxSize: ''\ntlsMinVersion: ''\n"
    assert load(tmp_path, text) == AgentConfig()


def test_what_a_kubelet_forgives_is_ignored_and_named(tmp_path: Path) -> None:
    config = load(
        tmp_path, 'clusterDNS: [10.96.0.10, dns.example.com, "fe80::a%eth0"]\nhttpCheckFrequency: -1s\n'
    )
    assert config.network.cluster_dns == ("10.96.0.10",)
    assert config.sources.http_check_seconds == 20
    assert [(one.name, one.value) for one in config.unused] == [
        ("clusterDNS", "dns.example.com"),
        ("clusterDNS", "fe80::a%eth0"),
        ("httpCheckFrequency", "-1s"),
    ]


def test_the_alpha_options_of_the_log_follow_their_feature_gate(tmp_path: Path) -> None:
    option = "logging: {options: {text: {splitStream: true}}}\n"
    with pytest.raises(InvalidConfig, match=r"logging\.options.text\.splitStream: needs the feature gate"):
        load(tmp_path, option)
    assert len(load(tmp_path, option + "featureGates: {LoggingAlphaOptions: true}\n").unused) == 2


def test_a_negative_log_size_switches_rotation_off_as_in_a_kubelet(tmp_path: Path) -> None:
    config = load(tmp_path, "containerLogMaxSize: '-1'\n")
    assert rotation_limits(config).max_size_bytes > 2**60
