"""Targets of the driver: which paths are accepted, and that no link leads out of the kubelet's directory."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.paths import MAX_PATH, parse_target

from kubeletx.api import KubeletxError

ROOTS = {"/var/lib/kubelet": "/var/lib/kubelet", "/link": "/data/kubelet"}
GOOD = "/var/lib/kubelet/pods/u-1/volumes/kubeletx.io~storage/pv-1"


def test_a_target_is_split_into_its_parts() -> None:
    target = parse_target(GOOD, ROOTS)
    assert (target.kubelet_root, target.pod_uid, target.name) == ("/var/lib/kubelet", "u-1", "pv-1")
    assert target.path == GOOD
    assert target.global_directory == "/var/lib/kubelet/plugins/kubeletx.io/storage/mounts/pv-1"


def test_a_root_that_is_a_link_is_replaced_by_its_real_path() -> None:
    target = parse_target(GOOD.replace("/var/lib/kubelet", "/link"), ROOTS)
    assert target.path == GOOD.replace("/var/lib/kubelet", "/data/kubelet")


@pytest.mark.parametrize("path", [f"{GOOD}/", f"{GOOD}//", GOOD.replace("/pods", "//pods"), f"//{GOOD}"])
def test_more_slashes_are_one(path: str) -> None:
    assert parse_target(path, ROOTS).path == GOOD


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "pods/u/volumes/kubeletx.io~storage/pv",
        GOOD + "/deeper",
        GOOD.replace("/pv-1", ""),
        GOOD.replace("u-1", ".."),
        GOOD.replace("u-1", "."),
        GOOD.replace("pv-1", ".."),
        GOOD.replace("pv-1", "PV"),
        GOOD.replace("pv-1", "-o"),
        GOOD.replace("pv-1", "pv 1"),
        GOOD.replace("pv-1", "pv\n1"),
        GOOD.replace("pv-1", "pv\0"),
        GOOD.replace("pv-1", "pv\udcff"),
        GOOD.replace("pv-1", "p" * 254),
        GOOD.replace("u-1", "u" * 256),
        GOOD.replace("u-1", "-u"),
        GOOD.replace("kubeletx.io~storage", "kubernetes.io~rbd"),
        GOOD.replace("/var/lib/kubelet", "/var/lib/kubelets"),
        GOOD.replace("/var/lib/kubelet", "/etc"),
        GOOD.replace("pods", "plugins"),
        "/var/lib/kubelet/../../etc/pods/u/volumes/kubeletx.io~storage/pv",
        "/var/lib/kubelet/" + "x/" * MAX_PATH,
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(KubeletxError):
        parse_target(path, ROOTS)


@given(st.one_of(st.text(), st.text("/.~abc-_ \n\0'\"$,:=kubeletxio", max_size=60)))
def test_an_accepted_target_is_always_below_its_root(text: str) -> None:
    for path in (
        text,
        f"/var/lib/kubelet/pods/{text}",
        GOOD.replace("pv-1", text),
        GOOD.replace("u-1", text),
    ):
        try:
            target = parse_target(path, ROOTS)
        except KubeletxError as error:
            message = str(error)
        else:
            message = ""
            assert target.path == re.sub("/+", "/", path).removesuffix("/")
        assert len(message) < 2000
        if message:
            continue
        assert os.path.normpath(target.path) == target.path
        assert target.path.startswith("/var/lib/kubelet/pods/")
        assert not {"-", ".", ""} & {part[:1] for part in target.path.split("/")[4:]}
