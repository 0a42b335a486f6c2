from __future__ import annotations

from pathlib import Path

from kubeletx.volumes import mountinfo
from kubeletx.volumes.mountinfo import find_mount, mounts_below, parse_mountinfo, read_mountinfo

TEXT = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
60 27 0:50 / /pods/u1/m rw,relatime shared:7 master:2 - tmpfs tmpfs rw,size=1024k
61 27 0:51 /a\\040b /pods/u1/my\\040dir rw - tmpfs tmp\\011fs rw
62 27 0:52 / /pods/u10 rw - tmpfs tmpfs rw
63 27 0:53 / /pods/u1/m rw - tmpfs top rw
"""


def test_every_line_becomes_a_mount():
    mounts = parse_mountinfo(TEXT)
    assert [one.target for one in mounts][:4] == ["/proc", "/", "/pods/u1/m", "/pods/u1/my dir"]
    assert (mounts[2].fstype, mounts[2].shared, mounts[2].super_options) == ("tmpfs", True, "rw,size=1024k")
    assert (mounts[3].root, mounts[3].source, mounts[3].shared) == ("/a b", "tmp\tfs", False)


def test_mounts_below_a_directory_do_not_include_its_neighbours():
    found = mounts_below(parse_mountinfo(TEXT), Path("/pods/u1"))
    assert [one.id for one in found] == [60, 61, 63]


def test_the_topmost_mount_is_found():
    found = find_mount(parse_mountinfo(TEXT), Path("/pods/u1/m"))
    assert found is not None
    assert found.source == "top"
    assert find_mount(parse_mountinfo(TEXT), Path("/pods")) is None


def test_the_table_of_this_process_can_be_read():
    assert any(one.target == "/" for one in read_mountinfo())


def test_of_many_mounts_only_those_that_are_asked_for_are_taken_apart(tmp_path, monkeypatch):
    odd = "/pods/a b\\c"
    targets = [*(f"/run/{number}" for number in range(1000)), odd, f"{odd}/volumes/x", "/pods/a"]
    lines = [
        f"{number} 1 0:1 / {_written(target)} rw shared:1 - tmpfs none rw"
        for number, target in enumerate(targets)
    ]
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(mountinfo, "MOUNTINFO", table)
    assert len(mountinfo.read_mountinfo()) == len(targets)
    found = mountinfo.read_mountinfo(Path(odd))
    assert [one.target for one in found] == [odd, f"{odd}/volumes/x"]
    assert mountinfo.mounts_below(mountinfo.read_mountinfo(), Path(odd)) == found


def _written(target: str) -> str:
    """As the kernel writes it."""
    return target.replace("\\", "\\134").replace(" ", "\\040")
