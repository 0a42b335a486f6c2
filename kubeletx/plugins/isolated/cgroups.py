"""`child_cgroups`: the cgroups of distributions' child processes, ``<cgroup root>/kubeletx-plugins/<distribution>``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from kubeletx.api import Resources
from kubeletx.node.cgroups.trees import CgroupTrees, cpu_shares
from kubeletx.runtimes.isolation.process import ChildCgroup
from kubeletx.runtimes.plugins.identity import normal_name

from ..settings import PluginLimits

PARENT: Final = "kubeletx-plugins"


def child_cgroups(trees: CgroupTrees, root: str, settings: PluginLimits) -> Callable[[str], ChildCgroup]:
    """Return the function that returns the cgroup of a distribution. `root`: cgroup below which it is made."""
    limits = Resources(
        memory_limit_bytes=settings.memory_limit_bytes,
        pids_limit=settings.process_limit,
        cpu_shares=cpu_shares(settings.cpu_weight),
        unified={"cpu.weight": str(settings.cpu_weight)},  # exact, which the way over shares is not
    )

    parent = f"{root.strip('/')}/{PARENT}".strip("/")

    def cgroup_of(distribution: str) -> ChildCgroup:
        path = f"{parent}/{normal_name(distribution)}"

        def join(pid: int) -> None:
            trees.remove(path)  # what an agent left that was killed
            trees.create(path)
            trees.limit(path, limits)
            for tree in trees.roots:
                (tree / path / "cgroup.procs").write_text(str(pid))

        def remove() -> None:
            trees.remove(path)
            for tree in trees.roots:
                with contextlib.suppress(OSError):  # it has the cgroups of other distributions
                    (tree / parent).rmdir()

        return ChildCgroup(join, remove)

    return cgroup_of
