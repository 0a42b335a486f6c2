"""The kernel's cgroup file systems: finds their layout, and creates, limits and removes a cgroup in all of them.

There are two layouts. Unified (v2): there is one tree. Split (v1): there is one tree for each controller, and a cgroup
is a directory with the same path in each tree. A hybrid layout is a split one with a unified tree in addition. All
calls block; run them in a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubeletx.api import Internal, Resources

from .text import text_of

CGROUP_MOUNT = Path("/sys/fs/cgroup")
V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
REMOVE_SECONDS = 5.0
UNLIMITED = -1


class CgroupTrees:
    """All cgroup trees of this machine. A cgroup has the same path, relative to the root, in every tree."""

    def __init__(self, mount: Path = CGROUP_MOUNT) -> None:
        """`mount`: directory of the cgroup file systems. The layout is read from it now."""
        self._mount = mount
        self.version = 2 if (mount / "cgroup.controllers").exists() else 1
        self._v1 = {} if self.version == 2 else dict(_v1_trees(mount))
        self._beside = () if self.version == 2 else tuple(_v2_trees(mount))

    @property
    def roots(self) -> Sequence[Path]:
        """Root directories of all trees in which the agent creates cgroups."""
        return (self._mount,) if self.version == 2 else tuple(dict.fromkeys(self._v1.values()))

    def directory(self, controller: str, path: str) -> Path | None:
        """Return the directory of the cgroup in the tree of `controller`, whether or not the cgroup exists.

        None: the kernel lacks the controller.
        """
        root = self._mount if self.version == 2 else self._v1.get(controller)
        return root / path if root is not None else None

    def sibling_directory(self, path: str) -> Path | None:
        """Return the directory of the cgroup in the unified tree of a hybrid layout.

        None: the layout is not hybrid but pure v1 or v2.
        """
        return self._beside[0] / path if self._beside else None

    def exists(self, path: str) -> bool:
        """Return True if the cgroup exists in every tree."""
        return all((root / path).is_dir() for root in self.roots)

    def find_closed(self, path: str) -> Path | None:
        """Return the first existing directory in which this user lacks permission to create the cgroup.

        None: the user may create it in every tree.
        """
        for root in self.roots:
            at = root / path
            while not at.is_dir() and at != root:
                at = at.parent
            if not os.access(at, os.W_OK | os.X_OK):
                return at
        return None

    def create(self, path: str) -> None:
        """Create the cgroup and its missing parents in every tree; succeeds if it exists.

        Raises Internal if a directory cannot be created.
        """
        for root in self.roots:
            try:
                if self.version == 2:
                    _make_v2(root, Path(path).parts)
                else:
                    _make_v1(root / path, is_cpuset="cpuset" in root.name.split(","))
            except OSError as error:
                raise Internal(f"cannot make cgroup {path} in {root}: {error.strerror}") from error

    def limit(self, path: str, limits: Resources) -> None:
        """Write the limits that are not None to the cgroup's files; the value `UNLIMITED` removes a limit.

        Raises Internal if the kernel refuses a value, FileNotFoundError if the cgroup does not exist.
        """
        files = v2_files(limits) if self.version == 2 else v1_files(limits)
        for (controller, name), value in files.items():
            root = self._mount if self.version == 2 else self._v1.get(controller)
            if root is None:
                continue
            try:
                _write(root / path / name, value)
            except FileNotFoundError:
                if (root / path).is_dir():
                    continue  # this kernel was built without the feature, or v2 without the controller
                raise
            except OSError as error:
                raise Internal(f"cannot write {value!r} to {root / path / name}: {error.strerror}") from error

    def processes(self, path: str) -> set[int]:
        """Return the ids of the processes in the cgroup and in all cgroups below it."""
        pids: set[int] = set()
        for root in self.roots:
            for directory, _, files in os.walk(root / path):
                if "cgroup.procs" in files:
                    # ENODEV or ENOENT: the cgroup was removed while it was walked
                    with contextlib.suppress(OSError):
                        pids |= {int(pid) for pid in Path(directory, "cgroup.procs").read_text().split()}
        # 0: a process of another PID namespace, which this one cannot name.
        return pids - {0}

    def remove(self, path: str, *, wait_seconds: float = REMOVE_SECONDS) -> None:
        """Kill the processes in the cgroup, then remove it and all cgroups below it; succeeds if it does not exist.

        The processes are thawed, too: with the freezer of cgroup v1, a frozen process does not end by SIGKILL. Raises
        Internal if the cgroup cannot be removed within `wait_seconds`.
        """
        if not path.strip("/"):
            raise Internal(f"cgroup {path!r} is the root, which is never removed; name a cgroup below it")
        deadline = time.monotonic() + wait_seconds
        while not self._try_remove(path):
            for pid in self.processes(path):
                with contextlib.suppress(ProcessLookupError):  # ended since cgroup.procs was read
                    os.kill(pid, signal.SIGKILL)
            if self.version == 1:
                _thaw(self._mount / "freezer" / path)
            if time.monotonic() > deadline:
                left = sorted(self.processes(path))
                raise Internal(f"cgroup /{path} cannot be removed; processes in it: {left or 'none'}")
            # A killed process stays in its cgroup until the kernel has reaped it; until then rmdir fails with EBUSY.
            time.sleep(0.02)

    def _try_remove(self, path: str) -> bool:
        # A list, not a generator: `all` would stop at the first tree that is busy and leave the others.
        gone = [_remove_tree(root / path) for root in (*self.roots, *self._beside)]
        return all(gone)


def v1_files(limits: Resources) -> dict[tuple[str, str], str]:
    """Return the contents of the cgroup v1 files that set these limits, by (controller, file name).

    They are in the order in which to write them. Limits that are None are left out.
    """
    values: dict[tuple[str, str], int | None] = {
        ("cpu", "cpu.shares"): limits.cpu_shares,
        ("cpu", "cpu.cfs_period_us"): limits.cpu_period_us,
        ("cpu", "cpu.cfs_quota_us"): limits.cpu_quota_us,
        ("memory", "memory.limit_in_bytes"): limits.memory_limit_bytes,
    }
    files = {key: str(value) for key, value in values.items() if value is not None}
    if limits.pids_limit is not None:
        files["pids", "pids.max"] = str(limits.pids_limit) if limits.pids_limit > 0 else "max"
    return files


def v2_files(limits: Resources) -> dict[tuple[str, str], str]:
    """Return the contents of the cgroup v2 files that set these limits, by (controller, file name).

    They are in the order in which to write them. Limits that are None are left out.
    """
    files: dict[tuple[str, str], str] = {}
    if limits.cpu_shares is not None:
        files["cpu", "cpu.weight"] = str(cpu_weight(limits.cpu_shares))
    if limits.cpu_quota_us is not None:
        quota = str(limits.cpu_quota_us) if limits.cpu_quota_us > 0 else "max"
        files["cpu", "cpu.max"] = f"{quota} {limits.cpu_period_us or 100_000}"
    for controller, name, value in (
        ("memory", "memory.max", limits.memory_limit_bytes),
        ("pids", "pids.max", limits.pids_limit),
    ):
        if value is not None:
            files[controller, name] = str(value) if value > 0 else "max"
    for name, text in limits.unified.items():
        files[name.partition(".")[0], name] = text
    return files


def cpu_weight(shares: int) -> int:
    """Convert CPU shares (2 to 262144) to a v2 weight (1 to 10000), with the formula of the kubelet and runc."""
    return 1 + (max(2, min(shares, 262_144)) - 2) * 9999 // 262_142


def cpu_shares(weight: int) -> int:
    """Convert a v2 weight to CPU shares. Shares that were converted to a weight and back may be a little lower."""
    return 2 + (weight - 1) * 262_142 // 9999


def _v1_trees(mount: Path) -> Iterator[tuple[str, Path]]:
    """Yield each v1 controller with the root directory of its tree.

    Controllers that are mounted together (cpu,cpuacct) have the same tree.
    """
    for entry in sorted(mount.iterdir()):
        # A link such as cpu -> cpu,cpuacct is a second name of one tree; cgroup.controllers is in the unified tree.
        if (
            entry.is_symlink()
            or not (entry / "cgroup.procs").exists()
            or (entry / "cgroup.controllers").exists()
        ):
            continue
        for controller in entry.name.split(","):
            yield controller, entry


def _v2_trees(mount: Path) -> Iterator[Path]:
    """Yield the root directories of the unified trees of a hybrid layout.

    The agent creates no cgroups there, but runc does, and does not remove their parents.
    """
    for entry in sorted(mount.iterdir()):
        if not entry.is_symlink() and (entry / "cgroup.controllers").exists():
            yield entry


def _make_v1(directory: Path, *, is_cpuset: bool) -> None:
    """Make a v1 cgroup, and its missing parents.

    The cgroup itself is tried first, to save system calls: this runs in about nine trees for every pod.
    """
    try:
        directory.mkdir()
    except FileExistsError:  # made before, or by a concurrent create; the limits are written anyway
        pass
    except FileNotFoundError:
        if not directory.name:
            raise
        _make_v1(directory.parent, is_cpuset=is_cpuset)
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
    if is_cpuset:
        _inherit_cpuset(directory)


def _make_v2(root: Path, parts: Sequence[str]) -> None:
    for part in parts:
        _enable_controllers(root)
        root = root / part
        # Controllers first: a child gets files only for controllers that its parent has enabled.
        root.mkdir(exist_ok=True)


def _enable_controllers(directory: Path) -> None:
    have = (directory / "cgroup.controllers").read_text().split()
    on = (directory / "cgroup.subtree_control").read_text().split()
    for controller in V2_CONTROLLERS:
        if controller in have and controller not in on:
            # Busy: the cgroup has processes of its own, so the controller stays off.
            with contextlib.suppress(OSError):
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(directory: Path) -> None:
    """Copy CPUs and memory nodes from the parent: a new v1 cpuset is empty and refuses processes."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        _inherited(directory, name)


def _inherited(directory: Path, name: str) -> str:
    """Return the content of a cpuset's file; if it is empty, copy that of the parent first.

    The parent may be empty too, for a moment: a concurrent create has just made it.
    """
    text = text_of(directory / name)
    if text.strip() or not (directory / "tasks").exists():
        return text
    text = _inherited(directory.parent, name)
    _write(directory / name, text)
    return text


def _write(file: Path, text: str) -> None:
    """Write a file of the kernel with one system call; `Path.write_text` takes several times as long."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _remove_tree(directory: Path) -> bool:
    gone = True
    # From the bottom: the kernel refuses to remove a cgroup that has children. Its files vanish with it.
    for path, _, _ in os.walk(directory, topdown=False):
        try:
            Path(path).rmdir()
        except FileNotFoundError:  # the runtime removed it at the same time
            continue
        except OSError:
            gone = False
    return gone


def _thaw(directory: Path) -> None:
    """Thaw a cgroup of the v1 freezer and all below it; does nothing if they are gone."""
    # Each level: THAWED does not thaw cgroups below that were frozen by a write to their own file.
    for path, _, names in os.walk(directory):
        if "freezer.state" in names:
            with contextlib.suppress(OSError):
                Path(path, "freezer.state").write_text("THAWED")
