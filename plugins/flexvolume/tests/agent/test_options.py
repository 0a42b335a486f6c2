"""Options that a kubelet passes to mount: what they become, and what is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.options import parse_options, problem_with_option
from kubeletx_flexvolume.agent.paths import TargetPath
from kubeletx_flexvolume.backends.registry import Backends
from kubeletx_flexvolume.values import AccessMode, MountRequest

from kubeletx.api import InvalidConfig, InvalidPod, KubeletxError
from plugins.flexvolume.tests.agent.agent_model import Faults, ModelBackend


class OptionsBackend(ModelBackend):
    """A backend with an option of its own."""

    parameters = frozenset({"server"})


BACKENDS = Backends((OptionsBackend(Faults()),))
TARGET = TargetPath(kubelet_root="/k", pod_uid="u1", name="pv-1")
KUBELET = {
    "kubernetes.io/fsType": "",
    "kubernetes.io/readwrite": "rw",
    "kubernetes.io/pvOrVolumeName": "pv-1",
    "kubernetes.io/pod.name": "web-0",
    "kubernetes.io/pod.namespace": "shop",
    "kubernetes.io/pod.uid": "u1",
    "kubernetes.io/serviceAccount.name": "default",
}


def parse(**changes: str | None) -> MountRequest:
    """The request of options that differ from a usual call. `__` stands for ``kubernetes.io/``, None removes one."""
    options: dict[str, Any] = {**KUBELET, "backend": "model"}
    for key, value in changes.items():
        options[key.replace("__", "kubernetes.io/")] = value
    given = {key: value for key, value in options.items() if value is not None}
    return parse_options(json.dumps(given), TARGET, BACKENDS)


def test_a_usual_call_is_understood() -> None:
    request = parse(size="10Gi", pool="fast", image="disk-7", cluster="rook/ceph", server="a.example")
    volume = request.volume
    assert (volume.name, volume.backend, volume.image, volume.pool) == ("pv-1", "model", "disk-7", "fast")
    assert (volume.size_bytes, volume.fs_type, volume.cluster) == (10 << 30, "ext4", "rook/ceph")
    assert volume.parameters == {"server": "a.example"}
    assert (str(request.pod), request.pod.uid) == ("shop/web-0", "u1")
    assert request.target == "/k/pods/u1/volumes/kubeletx.io~storage/pv-1"
    assert not request.read_only
    assert request.fs_group is None


def test_the_volume_has_the_name_of_its_image_and_may_have_another() -> None:
    assert parse().volume.image == "pv-1"
    assert parse(name="shop-data").volume.name == "shop-data"


def test_a_volume_may_say_that_its_pods_belong_to_a_stateful_set() -> None:
    assert parse(statefulSet="true").volume.parameters == {"statefulSet": "true"}
    assert parse(statefulSet="false").volume.parameters == {}
    with pytest.raises(InvalidPod, match="option statefulSet: 'yes' is neither true nor false"):
        parse(statefulSet="yes")


@pytest.mark.parametrize("key", ["__fsGroup", "__mounterArgs.FsGroup"])
def test_both_spellings_of_the_fs_group_are_read(key: str) -> None:
    assert parse(**{key: "2000"}).fs_group == 2000


def test_access_modes_and_mount_options_are_lists() -> None:
    volume = parse(accessModes="ReadWriteOnce, ReadOnlyMany", mountOptions="noatime,commit=5,nosuid").volume
    assert volume.access_modes == (AccessMode.READ_WRITE_ONCE, AccessMode.READ_ONLY_MANY)
    assert volume.mount_options == ("noatime", "commit=5", "nosuid")


def test_secrets_are_decoded_and_never_shown() -> None:
    request = parse(**{"__secret/key": base64.b64encode(b"hunter2").decode()})
    assert request.secrets == {"key": b"hunter2"}
    assert "hunter2" not in repr(request)
    with pytest.raises(InvalidPod) as caught:
        parse(**{"__secret/key": "hunter2!"})
    assert "kubernetes.io/secret/key" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_new_keys_of_the_kubelet_are_ignored_and_other_unknown_keys_are_named() -> None:
    parse(**{"__newKey": "x"})
    with pytest.raises(
        InvalidPod, match=r"option sise: is unknown to backend model; use accessModes, backend"
    ):
        parse(sise="10Gi")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": None}, "option backend: is missing"),
        ({"__pod.name": None}, "pod.name: is missing"),
        ({"__pod.uid": "u2"}, "is not the pod UID of the target"),
        ({"__pvOrVolumeName": "pv-2"}, "is not the last component of the target"),
        ({"__readwrite": "maybe"}, "'maybe' is neither ro nor rw"),
        ({"__fsType": "vfat"}, "'vfat' is not supported; use one of ext3, ext4, xfs"),
        ({"__fsGroup": "-1"}, "not a group ID"),
        ({"__fsGroup": "4294967295"}, "not a group ID"),
        ({"size": "ten"}, "'ten' is not a quantity"),
        ({"size": "0"}, "is not positive"),
        ({"size": "-1"}, "is not positive"),
        ({"cluster": "ceph"}, "is not NAMESPACE/NAME"),
        ({"cluster": "../x"}, "is not NAMESPACE/NAME"),
        ({"accessModes": "ReadWriteTwice"}, "ReadWriteTwice"),
        ({"mountOptions": "noatime,suid"}, "'suid' is not allowed"),
        ({"mountOptions": "remount"}, "'remount' is not allowed"),
        ({"mountOptions": "bind"}, "'bind' is not allowed"),
        ({"mountOptions": "ro"}, "'ro' is not allowed"),
        ({"mountOptions": "data=ordered\nx"}, "is not allowed"),
        ({"mountOptions": ",".join(["noatime"] * 40)}, "more than 32"),
    ],
)
def test_what_is_invalid_is_named(changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse(**changes)
    assert "volume pv-1" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("changes", [{"backend": "floppy"}, {"name": "../../etc"}, {"name": "-o"}])
def test_names_and_backends_that_do_not_exist_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        parse(**changes)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"a":1}', '{"a":{}}', "{", '"x"', "[" * 100_000, '{"\\ud800":"x"}']
)
def test_what_is_not_an_object_of_strings_is_refused(text: str) -> None:
    with pytest.raises(KubeletxError):
        parse_options(text, TARGET, BACKENDS)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.text(max_size=30))
def test_any_options_give_a_request_or_an_error_of_one_line(more: dict[str, str], options: str) -> None:
    try:
        parse_options(
            json.dumps({**KUBELET, "backend": "model", "mountOptions": options, **more}), TARGET, BACKENDS
        )
    except KubeletxError as error:
        message = str(error)
    else:
        message = ""
    assert len(message) < 3000


@pytest.mark.parametrize(
    ("file_system", "allowed", "refused"),
    [
        (
            "ext4",
            ["errors=remount-ro", "data=journal", "noload"],
            ["errors=panic", "nouuid", "hard", "abort"],
        ),
        ("ext3", ["errors=continue"], ["errors=panic", "inode64"]),
        ("xfs", ["nouuid", "logbufs=8"], ["errors=remount-ro", "data=journal", "wsync"]),
        ("nfs", ["vers=4.2", "soft", "nosuid"], ["errors=continue", "discard", "commit=5"]),
        ("directory", ["nosuid", "noatime"], ["discard", "errors=continue", "sync", "hard"]),
    ],
)
def test_mount_options_are_those_of_the_file_system(
    file_system: str, allowed: list[str], refused: list[str]
) -> None:
    assert [one for one in allowed if problem_with_option(one, file_system)] == []
    assert [one for one in refused if not problem_with_option(one, file_system)] == []


def test_a_mount_option_that_stops_the_node_is_refused() -> None:
    with pytest.raises(InvalidPod, match=r"'errors=panic' is not allowed: the value must match"):
        parse(mountOptions="noatime,errors=panic")
    xfs = {"__fsType": "xfs"}
    with pytest.raises(InvalidPod, match="'errors=remount-ro' is not allowed for xfs; use nosuid, nodev"):
        parse(mountOptions="errors=remount-ro", **xfs)


@given(st.text(max_size=20))
def test_a_mount_option_never_contains_a_comma_or_a_space(text: str) -> None:
    for option in (text, f"data={text}", f"commit={text}", f"vers={text}"):
        if not problem_with_option(option, "ext4") or not problem_with_option(option, "nfs"):
            assert option.isascii()
            assert not set(option) & set(", \n\0/'\"\\")
