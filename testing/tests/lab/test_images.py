"""Images are written the same way every time and mean what they say. No daemon, no root."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kubeletx_testing.lab.images import is_static
from kubeletx_testing.lab.oci import Entry, build_image, build_layer

_NAMES = st.text("abcdefgh", min_size=1, max_size=6)


@given(st.dictionaries(_NAMES, st.binary(max_size=64), min_size=1), st.randoms())
def test_a_layer_does_not_depend_on_the_order_of_its_entries(files, random) -> None:  # type: ignore[no-untyped-def]
    entries = [Entry(path=path, content=content) for path, content in files.items()]
    shuffled = random.sample(entries, len(entries))
    assert build_layer(entries) == build_layer(shuffled)


def test_a_layer_holds_files_directories_and_links_with_their_modes() -> None:
    layer = build_layer(
        [
            Entry(path="bin"),
            Entry(path="bin/tool", content=b"x", mode=0o755),
            Entry(path="bin/other", link="tool"),
            Entry(path="tmp", mode=0o1777),
        ]
    )
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert members["bin"].isdir()
    assert members["bin/tool"].mode == 0o755
    assert members["bin/other"].linkname == "tool"
    assert members["tmp"].mode == 0o1777
    assert all(member.mtime == 0 for member in members.values())


def test_every_digest_in_the_manifest_names_a_blob_of_that_content() -> None:
    layer = build_layer([Entry(path="file", content=b"content")])
    image = build_image(
        name="x", tag="1", layers=[layer, layer], config={"Cmd": ["sh"]}, architecture="amd64"
    )
    manifest = json.loads(image.manifest)
    for descriptor in [manifest["config"], *manifest["layers"]]:
        blob = image.blobs[descriptor["digest"]]
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert descriptor["size"] == len(blob)
    config = json.loads(image.blobs[manifest["config"]["digest"]])
    unpacked = gzip.decompress(image.blobs[manifest["layers"][0]["digest"]])
    assert config["rootfs"]["diff_ids"][0] == f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
    assert config["config"] == {"Cmd": ["sh"]}


def test_a_program_with_an_interpreter_is_not_static() -> None:
    assert not is_static(Path(sys.executable).read_bytes())
    assert not is_static(b"#!/bin/sh\n")
