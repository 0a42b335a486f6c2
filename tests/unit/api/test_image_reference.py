"""Image references are read as Docker, containerd and the kubelet read them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kubeletx.api import (
    ImageReference,
    InvalidPod,
    find_image_reference,
    is_same_image,
    parse_image_reference,
    without_credentials,
)

SHA = "a" * 64
DIGEST = f"sha256:{SHA}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/a/b", "docker.io/a/b:latest"),
        ("a/b", "docker.io/a/b:latest"),
        ("library/b", "docker.io/library/b:latest"),
        ("a/b.c:1", "docker.io/a/b.c:1"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("127.0.0.1:5000/a/b:x", "127.0.0.1:5000/a/b:x"),
        ("[::1]/a", "[::1]/a:latest"),
        ("[fd00::a]:5000/a:1", "[fd00::a]:5000/a:1"),
        ("Host/a", "Host/a:latest"),
        ("R.io/a", "R.io/a:latest"),
        ("a__b/c---d_e.f", "docker.io/a__b/c---d_e.f:latest"),
        ("localhost:1", "docker.io/library/localhost:1"),
        (f"r.io/a@{DIGEST}", f"r.io/a@{DIGEST}"),
        (f"r.io/a:t@{DIGEST}", f"r.io/a:t@{DIGEST}"),
        (f"busybox@sha512:{SHA}{SHA}", f"docker.io/library/busybox@sha512:{SHA}{SHA}"),
    ],
)
def test_what_is_left_out_is_filled_in(written: str, meant: str) -> None:
    assert str(parse_image_reference(written)) == meant
    assert is_same_image(written, meant)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("", "it is empty"),
        ("a b", "spaces or control characters"),
        ("a\n", "spaces or control characters"),
        ("https://r.io/a", "it is a URL"),
        ("App", "capital letters"),
        ("me/App:1", "capital letters"),
        ("r.io/Me/app", "capital letters"),
        (":1", "it has no name"),
        ("r.io/", "it has no name"),
        ("-a", "its name holds more"),
        ("a//b", "its name holds more"),
        ("a..b/c", "its registry is no HOST"),
        ("[::1]:x/a", "its registry is no HOST"),
        ("r.io:/a", "its registry is no HOST"),
        ("a:", "its tag is empty"),
        ("a:b:c", "its tag has more"),
        ("a:" + "x" * 129, "its tag has more"),
        ("a@", "the part after @ is not a digest"),
        ("a@md5:" + "0" * 32, "the part after @ is not a digest"),
        ("a@sha256:zz", "64 hexadecimal digits"),
        ("a@sha256:" + "A" * 64, "64 hexadecimal digits"),
        (SHA, "image id"),
        ("a" * 240, "more than 255 characters"),
    ],
)
def test_what_is_not_a_reference_is_refused_with_the_reason(bad: str, problem: str) -> None:
    with pytest.raises(InvalidPod, match=problem) as caught:
        parse_image_reference(bad, "image of container web")
    assert caught.value.field == "image of container web"
    assert caught.value.reason == "InvalidImageName"
    assert find_image_reference(bad) is None


@pytest.mark.parametrize("image", ["me:hunter2@r.io/a", "me:hun!ter2@r.io/a:1", "me/a:hunter2@r.io/a"])
def test_a_refusal_shows_no_password(image: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse_image_reference(image)
    assert "hun" not in str(caught.value)


def test_a_tag_does_not_count_beside_a_digest() -> None:
    both, only = parse_image_reference(f"r.io/a:1@{DIGEST}"), parse_image_reference(f"r.io/a@{DIGEST}")
    assert both == ImageReference("r.io", "a", "1", DIGEST)
    assert both.canonical == only
    assert is_same_image(f"r.io/a:1@{DIGEST}", f"r.io/a:2@{DIGEST}")
    assert not is_same_image("r.io/a:1", "r.io/a:2")
    assert not is_same_image("r.io/a:1", f"r.io/a:1@{DIGEST}")


def test_other_texts_are_the_same_only_if_they_are_equal() -> None:
    assert is_same_image("https://h.example/a", "https://h.example/a")
    assert not is_same_image("https://h.example/a", "https://h.example/A")


_PART = st.from_regex(r"[a-z0-9]{1,3}((\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}", fullmatch=True)
_HOSTS = st.sampled_from(
    [
        "",
        "r.io/",
        "localhost/",
        "r.io:5000/",
        "docker.io/",
        "index.docker.io/",
        "[::1]:80/",
        "[fe80::1]/",
        "HOST/",
    ]
)
_ENDS = st.sampled_from(["", ":t", ":1.0", ":_-.", f"@{DIGEST}", f":x@{DIGEST}", f"@sha384:{'0' * 96}"])


@given(_HOSTS, st.lists(_PART, min_size=1, max_size=3), _ENDS)
def test_a_parsed_reference_parses_to_itself(host: str, path: list[str], end: str) -> None:
    assume(host or len(path) == 1 or "." not in path[0])  # else it may be a host, or no valid one
    once = parse_image_reference(host + "/".join(path) + end)
    assert parse_image_reference(str(once)) == once
    assert parse_image_reference(str(once.canonical)) == once.canonical
    assert once.registry
    assert once.tag or once.digest


@given(st.text() | st.text("aB1.:/@[]-_", max_size=20))
def test_any_text_is_a_reference_that_parses_to_itself_or_refused(text: str) -> None:
    found = find_image_reference(text)
    if found is None:
        with pytest.raises(InvalidPod):
            parse_image_reference(text)
    else:
        assert find_image_reference(str(found)) == found


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        ("busybox:1", "busybox:1"),
        ("reg.example:5000/a/b@sha256:0a1b", "reg.example:5000/a/b@sha256:0a1b"),
        ("/srv/images/a.qcow2", "/srv/images/a.qcow2"),
        ("https://h.example/a.qcow2#sha256=0a", "https://h.example/a.qcow2#sha256=0a"),
        ("https://me:pw@h.example/a.qcow2", "https://...@h.example/a.qcow2"),
        ("https://me:p/w@h.example/a.qcow2", "https://...@h.example/a.qcow2"),
        ("me:pw@h.example/a.qcow2", "...@h.example/a.qcow2"),
        ("https://h.example/a?token=x#sha256=0a", "https://h.example/a?...#sha256=0a"),
        ("h.example/a.img?X-Signature=x", "h.example/a.img?..."),
    ],
)
def test_user_names_passwords_and_queries_are_left_out(image: str, shown: str) -> None:
    assert without_credentials(image) == shown
