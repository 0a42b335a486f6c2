"""Names of images in messages hold no secret."""

from __future__ import annotations

import pytest

from kubeletx.kube.text.image_names import without_credentials


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
