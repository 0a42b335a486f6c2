"""The mount table: whatever a path contains, its mount is found, and no other line is lost."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.linux.mounts import (
    MountPoint,
    find_mount,
    kernel_path,
    mounts_below,
    parse_mounts,
    read_mounts,
)

TEXT = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
60 27 0:50 / /pods/u1/m rw,relatime shared:7 master:2 - tmpfs tmpfs rw,size=1024k
61 27 0:51 /a\\040b /pods/u1/my\\040dir ro - tmpfs tmp\\011fs rw
62 27 0:52 / /pods/u10 rw - tmpfs tmpfs rw
63 27 0:53 / /pods/u1/m rw - tmpfs top rw
64 27 0:5 /loop7 /pods/u1/block rw - devtmpfs udev rw
"""
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=6)
COMPONENTS = NAMES.filter(lambda name: name not in (".", ".."))  # the kernel writes none of these
PATHS = st.lists(COMPONENTS, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


def line(mount: MountPoint) -> bytes:
    """The line of the kernel; it escapes exactly these four characters (seq_path, mangle)."""

    def written(text: str) -> bytes:
        data = os.fsencode(text)
        for char in (b"\\", b" ", b"\t", b"\n"):
            data = data.replace(char, b"\\%03o" % ord(char))
        return data

    shared = b"shared:3 " if mount.is_shared else b""
    head = b"%d 1 %b %b %b" % (
        mount.id,
        mount.device.encode(),
        written(mount.root),
        written(mount.target),
    )
    options, above = ",".join(mount.options).encode(), ",".join(mount.super_options).encode()
    return b"%b %b %b- %b %b %b\n" % (
        head,
        options,
        shared,
        mount.fs_type.encode(),
        written(mount.source),
        above,
    )


MOUNTS = st.builds(
    MountPoint,
    id=st.integers(1, 10**6),
    device=st.just("8:1"),
    root=PATHS,
    target=PATHS,
    source=NAMES,
    fs_type=st.sampled_from(["ext4", "fuse.sshfs"]),
    options=st.sampled_from([("rw",), ("ro", "noatime")]),
    super_options=st.sampled_from([("rw",), ("ro", "errors=remount-ro")]),
    is_shared=st.booleans(),
)


@given(st.lists(MOUNTS, max_size=6), st.sampled_from([b"", b"no mount\n", b"1 2 3:4 / / rw\n", b"x\xff y\n"]))
def test_every_mount_is_read_as_it_was_written(mounts: list[MountPoint], odd: bytes) -> None:
    """A file system writes its own options, and an old one may not escape them: such lines hide no other."""
    with NamedTemporaryFile() as table:
        table.write(odd + b"".join(line(mount) + odd for mount in mounts))
        table.flush()
        path = Path(table.name)
        found = read_mounts(table=path)
        assert list(found) == mounts
        for mount in mounts:
            directory = Path(mount.target)
            below = mounts_below(read_mounts(directory, table=path), directory)
            assert below == mounts_below(found, directory)
            assert mount in below
            assert find_mount(below, directory) == [m for m in mounts if m.target == mount.target][-1]
            assert mount in read_mounts(word=mount.fs_type, table=path)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_not_an_error(data: bytes) -> None:
    parse_mounts(os.fsdecode(data))


def test_a_name_that_is_not_utf_8_is_kept() -> None:
    (mount,) = parse_mounts(os.fsdecode(b"1 1 8:1 / /v/\xff\xe2\x80 rw - ext4 /dev/sda1 rw"))
    assert os.fsencode(mount.target) == b"/v/\xff\xe2\x80"


def test_a_table_of_the_kernel() -> None:
    mounts = parse_mounts(TEXT)
    assert [m.id for m in mounts] == [22, 27, 60, 61, 62, 63, 64]
    assert (mounts[2].is_shared, mounts[2].super_options) == (True, ("rw", "size=1024k"))
    assert (mounts[3].root, mounts[3].source, mounts[3].is_shared) == ("/a b", "tmp\tfs", False)
    assert (mounts[3].is_read_only, mounts[2].is_read_only) == (True, False)
    assert (mounts[6].device_path, mounts[0].device_path) == ("/dev/loop7", "")
    assert mounts[2].has_same_files(mounts[2])
    assert not mounts[2].has_same_files(mounts[5])


def test_mounts_below_a_directory_do_not_include_its_neighbours_and_the_topmost_is_found() -> None:
    mounts = parse_mounts(TEXT)
    assert [m.id for m in mounts_below(mounts, Path("/pods/u1"))] == [60, 61, 63, 64]
    assert find_mount(mounts, "/pods") is None
    topmost = find_mount(mounts, Path("/pods/u1/m"))
    assert topmost is not None
    assert topmost.source == "top"


def test_the_table_of_this_process_is_read() -> None:
    assert find_mount(read_mounts(), "/proc") is not None


def test_links_in_the_directory_of_a_path_are_resolved_and_the_path_itself_is_not(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (real / "target").symlink_to("/elsewhere")
    assert kernel_path(str(tmp_path / "link" / "target")) == str(real / "target")
