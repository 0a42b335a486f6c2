"""Options of calls, and the checks of requests."""

from __future__ import annotations

import base64
import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.host.options import (
    check_request,
    driver_parts,
    encode_options,
    fingerprint,
    global_directory,
    mount_options,
    volume_options,
)
from msgspec.structs import replace

from kubeletx.api import InvalidPod, PodUid, VolumePod, VolumeRequest


def request(**fields: Any) -> VolumeRequest:
    pod = VolumePod(uid=PodUid("u"), name="p", namespace="n", service_account="a")
    return VolumeRequest(
        pod=pod, name="data", source="flexVolume", driver="v.example/d", target="/target", **fields
    )


def test_all_values_are_text_and_keys_are_those_of_the_kubelet() -> None:
    made = mount_options(request(fs_group=7, secrets={"k": b"s"}, options={"mine": "x"}, fs_type="xfs"))
    assert made == {
        "kubernetes.io/fsType": "xfs",
        "kubernetes.io/readwrite": "rw",
        "kubernetes.io/pvOrVolumeName": "data",
        "kubernetes.io/pod.name": "p",
        "kubernetes.io/pod.namespace": "n",
        "kubernetes.io/pod.uid": "u",
        "kubernetes.io/serviceAccount.name": "a",
        "kubernetes.io/fsGroup": "7",
        "kubernetes.io/mounterArgs.FsGroup": "7",
        "kubernetes.io/secret/k": "cw==",
        "mine": "x",
    }


def test_other_calls_get_neither_pod_nor_secrets() -> None:
    made = volume_options(request(fs_group=7, secrets={"k": b"s"}, persistent_volume="pv", read_only=True))
    assert made == {
        "kubernetes.io/fsType": "",
        "kubernetes.io/readwrite": "ro",
        "kubernetes.io/pvOrVolumeName": "pv",
    }


def test_a_group_of_zero_is_sent_and_none_is_not() -> None:
    assert mount_options(request(fs_group=0))["kubernetes.io/fsGroup"] == "0"
    assert "kubernetes.io/fsGroup" not in mount_options(request())


def test_json_is_written_as_go_writes_it() -> None:
    options = {"b": "<a&b>\u2028", "a": 'q"\\\n\té'}
    assert encode_options(options) == '{"a":"q\\"\\\\\\n\\té","b":"\\u003ca\\u0026b\\u003e\\u2028"}'


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/fsType",
        "kubernetes.io/x",
        "KUBERNETES.IO/x",
        "a.kubernetes.io/x",
        "k8s.io/x",
        "storage.k8s.io/x/y",
        "kubernetes.io",
        "x.k8s.io",
    ],
)
def test_reserved_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidPod, match="namespace of Kubernetes"):
        check_request(request(options={key: "x"}))


@pytest.mark.parametrize(
    "key", ["x", "kubernetes.ioo/x", "notkubernetes.io/x", "example.com/x", "k8s.io.example/x"]
)
def test_other_keys_are_allowed(key: str) -> None:
    check_request(request(options={key: "x"}))


@pytest.mark.parametrize(
    "options", [{"a": "\0"}, {"\0": "a"}, {"a": "\ud800"}, {"a": 1}, {"a": None}, {"a": {}}]
)
def test_values_that_no_driver_can_get_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPod):
        check_request(request(options=options))


@pytest.mark.parametrize("key", ["", "a/b", "a b", "a\0", "x" * 300])
def test_keys_of_secrets_are_those_of_the_api(key: str) -> None:
    with pytest.raises(InvalidPod):
        check_request(request(secrets={key: b"x"}))


@pytest.mark.parametrize("fs_type", ["ext4", "xfs", "ext4.v2", ""])
def test_names_of_file_systems_are_allowed(fs_type: str) -> None:
    check_request(request(fs_type=fs_type))


@pytest.mark.parametrize("fs_type", ["-t", "a b", "../x", "a/b", "ext4,loop", "x" * 40, "ext4\n"])
def test_other_file_systems_are_refused(fs_type: str) -> None:
    with pytest.raises(InvalidPod):
        check_request(request(fs_type=fs_type))


def test_a_driver_name_is_split_into_parts_of_a_path() -> None:
    assert driver_parts("v.example/d") == ("v.example", "d")
    assert driver_parts("d") == ("d",)
    assert global_directory(PurePosixPath("/r/plugins"), "v/d", "pv") == (
        "/r/plugins/kubernetes.io/flexvolume/v/d/mounts/pv"
    )


def test_a_fingerprint_depends_on_the_volume_and_not_on_the_pod() -> None:
    one = request(options={"image": "a"})
    other_pod = VolumePod(uid=PodUid("x"), name="x", namespace="x")
    same = replace(one, pod=other_pod, secrets={"k": b"s"}, read_only=True, target="/other")
    assert fingerprint(one) == fingerprint(same)
    for changed in (
        replace(one, options={"image": "b"}),
        replace(one, fs_type="xfs"),
        replace(one, persistent_volume="pv"),
    ):
        assert fingerprint(changed) != fingerprint(one)


words = st.text(max_size=20)


@given(
    options=st.dictionaries(words, words, max_size=5),
    secrets=st.dictionaries(st.from_regex(r"[-._a-zA-Z0-9]{1,20}", fullmatch=True), st.binary(max_size=20)),
)
def test_accepted_options_reach_the_driver_unchanged_and_reserved_keys_are_ours(
    options: dict[str, str], secrets: dict[str, bytes]
) -> None:
    one = request(options=options, secrets=secrets)
    try:
        check_request(one)
    except InvalidPod:
        return
    text = encode_options(mount_options(one))
    assert "\0" not in text
    decoded = json.loads(text)
    assert all(isinstance(value, str) for value in decoded.values())
    assert {key: decoded[key] for key in options} == options
    for key, data in secrets.items():
        assert base64.b64decode(decoded[f"kubernetes.io/secret/{key}"]) == data
    assert decoded["kubernetes.io/pod.uid"] == "u"
    assert list(decoded) == sorted(decoded)


@given(st.text(max_size=30))
def test_a_driver_name_never_leaves_the_directory(driver: str) -> None:
    if driver_parts(driver):
        path = global_directory(PurePosixPath("/r"), driver, "pv")
        assert ".." not in PurePosixPath(path).parts
        assert path.startswith("/r/kubernetes.io/flexvolume/")
        assert path.endswith(f"{driver}/mounts/pv")
