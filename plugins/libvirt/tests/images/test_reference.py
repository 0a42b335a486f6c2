"""What may be written as an image (DECISIONS 29)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.images.reference import HttpImage, LocalImage, OciImage, Pin, parse, source_hash

from kubeletx.api import InvalidPod

SHA = "a" * 64
XENIAL = "cloud-images.ubuntu.com/xenial/current/xenial-server-cloudimg-amd64-disk1.img"


@pytest.mark.parametrize(
    ("written", "source"),
    [
        (XENIAL, HttpImage(url=f"https://{XENIAL}")),
        ("http://Host.example:8080/A/B.QCOW2", HttpImage(url="http://host.example:8080/A/B.QCOW2")),
        ("https://h/x.img?token=A%2Fb&n=1", HttpImage(url="https://h/x.img?token=A%2Fb&n=1")),
        ("HTTPS://h/download?id=3", HttpImage(url="https://h/download?id=3")),
        ("h.example:81/x.raw.xz", HttpImage(url="https://h.example:81/x.raw.xz")),
        ("h.example/x.qcow2?v=2", HttpImage(url="https://h.example/x.qcow2?v=2")),
        ("h.example/x.qcow2.zst", HttpImage(url="https://h.example/x.qcow2.zst")),
        (f"https://h/x.img#sha256={SHA}", HttpImage(url="https://h/x.img", pin=Pin("sha256", SHA))),
        (f"h/x.img#sha512={'B' * 128}", HttpImage(url="https://h/x.img", pin=Pin("sha512", "b" * 128))),
        ("/srv/images/My Disk.img".replace(" ", "_"), LocalImage(path="/srv/images/My_Disk.img")),
        ("/srv/a#b.img", LocalImage(path="/srv/a#b.img")),
        (f"/srv/a.img#sha256={SHA}", LocalImage(path="/srv/a.img", pin=Pin("sha256", SHA))),
        ("file:///srv/a%20b.img", LocalImage(path="/srv/a b.img")),
        ("oci:quay.io/disks/fedora:40", OciImage(registry="quay.io", repository="disks/fedora", tag="40")),
        ("quay.io/disks/fedora", OciImage(registry="quay.io", repository="disks/fedora", tag="latest")),
        ("fedora", OciImage(registry="docker.io", repository="library/fedora", tag="latest")),
        ("me/fedora:1", OciImage(registry="docker.io", repository="me/fedora", tag="1")),
        ("localhost:5000/d", OciImage(registry="localhost:5000", repository="d", tag="latest")),
        ("oci:h.io/x.img", OciImage(registry="h.io", repository="x.img", tag="latest")),
        (
            f"r.io/d:1@sha256:{SHA}",
            OciImage(registry="r.io", repository="d", digest=f"sha256:{SHA}"),
        ),
    ],
)
def test_each_form_means_one_source(written: str, source: object) -> None:
    assert parse(written, {}) == source


def test_an_alias_comes_first_and_is_looked_up_once() -> None:
    aliases = {"ubuntu": "https://h/u.img", "/srv/x.img": "ubuntu"}
    assert parse("ubuntu", aliases) == HttpImage(url="https://h/u.img")
    assert parse("/srv/x.img", aliases).key == "oci:docker.io/library/ubuntu:latest"


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("", "empty"),
        ("https://h/a b.img", "spaces"),
        ("https://h/a\r\nX: y", "spaces"),
        ("ftp://h/x.img", "scheme ftp"),
        ("disk.img", "names no server"),
        ("https:///x.img", "names no server"),
        ("https://h:99999/x.img", "not a URL"),
        ("https://me:hunter2@h/x.img", "user name or password"),
        ("file://other/x.img", "not a file of this node"),
        ("https://h/x.img#top", "fragment"),
        ("https://h/x.img#sha256=12", "fragment"),
        ("https://h/x.img#md5=" + "a" * 32, "fragment"),
        ("Quay.io/Disks/Fedora", "registry reference"),
        ("oci:", "registry reference"),
        ("quay.io/x@sha256:12", "registry reference"),
    ],
)
def test_what_is_not_a_reference_is_refused_in_words(written: str, word: str) -> None:
    with pytest.raises(InvalidPod, match=word) as caught:
        parse(written, {})
    assert caught.value.reason == "InvalidImageName"


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidPod) as caught:
        parse("https://me:hunter2@h/x.img?q", {})
    assert "hunter2" not in str(caught.value)


def test_a_query_is_not_shown() -> None:
    assert parse("https://h/x.img?token=secret", {}).shown == "https://h/x.img?..."


@given(st.text())
def test_any_text_is_a_source_or_refused_and_never_a_file_name(text: str) -> None:
    try:
        source = parse(text, {})
    except InvalidPod:
        return
    assert source_hash(source).isalnum()
    assert parse(text, {}) == source
