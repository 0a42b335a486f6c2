"""Where the cgroup of a container is found: v1, v2, hybrid, systemd, and what is not the container's."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_quark.cgroups import Hierarchy, container_cgroup, container_cgroups, find_hierarchy
from kubeletx_quark.freezer import Freezer

from kubeletx.api import Conflict, NotFound, Unsupported
from kubeletx.testing import FakeClock

ID = "0123456789abcdef" * 4
V1 = "31 30 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
V2 = "41 31 0:38 / /sys/fs/cgroup/with\\040space rw shared:1 - cgroup2 cgroup2 rw\n"
PLAIN = "23 1 0:2 / / rw - ext4 /dev/sda rw,discard\n"


def hierarchy(tmp_path: Path, text: str) -> Hierarchy:
    (tmp_path / "self").mkdir(exist_ok=True)
    (tmp_path / "self" / "mountinfo").write_text(text)
    return find_hierarchy("freezer", tmp_path)


def test_version_1_is_used_where_it_is_mounted_else_version_2(tmp_path: Path) -> None:
    first = Hierarchy(1, "freezer", Path("/sys/fs/cgroup/freezer"), "/")
    second = Hierarchy(2, "", Path("/sys/fs/cgroup/with space"), "/")
    assert hierarchy(tmp_path, PLAIN + V2 + V1) == first
    assert hierarchy(tmp_path, PLAIN + V2) == second
    with pytest.raises(Unsupported, match="no cgroup hierarchy with controller freezer is mounted"):
        hierarchy(tmp_path, PLAIN)


def place(tmp_path: Path, line: str, *directories: str) -> Path:
    """A /proc with process 7 in the cgroup of `line`; makes directories of cgroups below ``mount``."""
    for one in directories:
        (tmp_path / "mount" / one).mkdir(parents=True)
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(line)
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (f"pods/{ID}", f"pods/{ID}"),
        (f"pods/{ID}/init.scope", f"pods/{ID}"),
        (f"a.slice/cri-containerd-{ID}.scope", f"a.slice/cri-containerd-{ID}.scope"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_cgroup_with_the_containers_id_is_its_own(
    tmp_path: Path, path: str, own: str, version: int
) -> None:
    line = f"6:freezer:/{path}\n0::/else\n" if version == 1 else f"6:freezer:/else\n0::/{path}\n"
    proc = place(tmp_path, line, path)
    mounted = Hierarchy(version, "freezer" if version == 1 else "", tmp_path / "mount", "/")
    assert container_cgroup(mounted, 7, ID, proc) == tmp_path / "mount" / own
    assert (ID, tmp_path / "mount" / own) in list(container_cgroups(mounted))


async def test_a_kernel_without_the_freezer_of_version_2_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"cgroup\.freeze does not exist; it needs Linux 5\.2"):
        await Freezer(tmp_path, 2).freeze(FakeClock())
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_a_hidden_and_a_missing_cgroup_are_refused(tmp_path: Path) -> None:
    proc = place(tmp_path, f"6:freezer:/pods/{ID}\n0::/system.slice\n")
    mount = tmp_path / "mount"
    with pytest.raises(Conflict, match=r"is in cgroup '/system.slice', which is not the container's"):
        container_cgroup(Hierarchy(2, "", mount, "/"), 7, ID, proc)
    with pytest.raises(Unsupported, match="is not visible below"):
        container_cgroup(Hierarchy(1, "freezer", mount, "/other"), 7, ID, proc)
    (proc / "7" / "cgroup").write_text(f"6:freezer:/../../pods/{ID}\n")
    with pytest.raises(Unsupported, match="is not visible below"):
        container_cgroup(Hierarchy(1, "freezer", mount, "/"), 7, ID, proc)
    (proc / "7" / "cgroup").write_text(f"6:freezer:/pods/{ID}\n")
    with pytest.raises(NotFound, match="is gone"):
        container_cgroup(Hierarchy(1, "freezer", mount, "/"), 7, ID, proc)
    with pytest.raises(NotFound, match="process 8 of container"):
        container_cgroup(Hierarchy(1, "freezer", mount, "/"), 8, ID, proc)
