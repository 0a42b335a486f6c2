"""Data and log directories of pods, and the symbolic links that log collectors read.

See docs/kubelet-parity.md, rows V2, I8 and L3.

    <pod_logs_dir>/<ns>_<name>_<uid>/<container>/<n>.log       0755
    <links_dir>/<name>_<ns>_<container>-<id>.log → the log

`kubeletx.volumes` removes a pod's data directory (below root_dir). All functions block.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec

from kubeletx.api import KubeletxError, PodUid, Unavailable, UnitId
from kubeletx.kube.types.core import Pod
from kubeletx.volumes import layout
from kubeletx.volumes.files.held import hold_directory
from kubeletx.volumes.files.safe_paths import make_private, remove_tree

from ..model.node_context import NodeContext

P = ParamSpec("P")

LOG_DIRECTORY_MODE: Final = 0o755
STANDARD_LOGS_DIR: Final = Path("/var/log/pods")
STANDARD_LINKS_DIR: Final = Path("/var/log/containers")
_LONGEST_NAME: Final = 255
_GOING: Final = ".going__"
"""Prefix of the name of a log directory that is being removed; the pod's UID follows."""
_ATTEMPT: Final = re.compile(r"\d{1,9}\.log(?:\..*)?", re.ASCII)
"""Name of a log file. At most nine digits, since a pod that can write here may have created any name."""
_NO_DIRECTORY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class PodDirectories:
    """Makes and removes pods' directories, logs and links to logs, and finds logs of earlier runs."""

    def __init__(self, context: NodeContext, *, links_dir: Path | None = None) -> None:
        """`links_dir`: directory for the links to logs.

        None: `STANDARD_LINKS_DIR` if the logs are in the standard directory, otherwise no links are made.
        """
        self._context = context
        standard = STANDARD_LINKS_DIR if context.pod_logs_dir == STANDARD_LOGS_DIR else None
        self._links_dir = links_dir or standard

    @property
    def makes_links(self) -> bool:
        """True if `link_log` makes links."""
        return self._links_dir is not None

    def make(self, pod: Pod) -> None:
        """Make the pod's data directory (0750, with volumes and plugins) and its log directory (0755)."""
        own = self._context.pod_directory(pod.uid)
        for part in ("volumes", "plugins"):
            _do(make_private, own / part)
        _do(_make_log_directory, self._context.log_directory(pod))

    def highest_attempt(self, pod: Pod, container: str) -> int | None:
        """Return the highest restart count among the container's log files that are not empty; None without one."""
        path = self._context.log_directory(pod) / layout.check_name(container, "spec.containers[].name")
        try:
            with hold_directory(path) as directory:
                names = [name for name in directory.files() if _ATTEMPT.fullmatch(name)]
                names = [name for name in names if (status := directory.stat(name)) and status.st_size]
        except OSError as err:
            if err.errno in _NO_DIRECTORY:
                return None
            raise
        return max((int(name.partition(".")[0]) for name in names), default=None)

    def earlier_runs(self, pod: Pod) -> dict[str, int]:
        """Map each container that has a log with content to the restart count of its next run.

        An empty log is ignored: the start of its container may have been interrupted.
        """
        with hold_directory(self._context.log_directory(pod), depth=1) as directory:
            names = directory.directories()
        attempts = {name: self.highest_attempt(pod, name) for name in names}
        return {name: attempt + 1 for name, attempt in attempts.items() if attempt is not None}

    def link_log(self, pod: Pod, container: str, unit_id: UnitId, log_path: str) -> None:
        """Make or replace the link for log collectors; do nothing if links are not made.

        `log_path`: the log, relative to the pod's log directory.
        """
        if self._links_dir is None:
            return
        # Names of pod, namespace and container may have 253, 63 and 63 characters; file systems allow 255.
        stem = f"{pod.name}_{pod.namespace}_{container}-{unit_id}"[: _LONGEST_NAME - len(".log")]
        link = self._links_dir / layout.check_name(f"{stem}.log", "metadata.name")
        _do(make_private, self._links_dir, LOG_DIRECTORY_MODE)
        _do(link.unlink, True)
        _do(link.symlink_to, self._context.log_directory(pod) / log_path)

    def remove_attempt(self, pod: Pod, container: str, attempt: int) -> None:
        """Remove the logs and termination message of one attempt (run of a container), and links to the logs."""
        directory = self._context.log_directory(pod) / layout.check_name(container, "container")
        prefix = f"{attempt}."
        self._remove_links(f"{directory}/{prefix}")
        _do(_remove_files, directory, prefix)
        message = layout.termination_message_path(self._context.root_dir, pod.uid, container, attempt)
        _do(_remove_files, message.parent, message.name)

    def remove_logs(self, uid: PodUid) -> None:
        """Remove the log directory of the pod with this UID, and the links into it. Idempotent.

        The directory is renamed first, so that late writers (`RawLogFollower`) fail instead of writing new files there.
        """
        for path in self._log_directories():
            if path.name.rsplit("_", 1)[-1] != uid:
                continue
            going = path
            if not path.name.startswith(_GOING):
                self._remove_links(f"{path}/")
                going = path.with_name(f"{_GOING}{uid}")
                _do(remove_tree, going)
                _do(path.rename, going)
            _do(remove_tree, going)

    def _remove_links(self, target: str) -> None:
        """Remove the links for log collectors whose target path begins with `target`."""
        if self._links_dir is None or not self._links_dir.is_dir():
            return
        for link in list(self._links_dir.iterdir()):
            if link.is_symlink() and os.readlink(link).startswith(target):
                _do(link.unlink, True)

    def _log_directories(self) -> list[Path]:
        try:
            return [
                entry
                for entry in self._context.pod_logs_dir.iterdir()
                if entry.name.count("_") == 2 and entry.is_dir() and not entry.is_symlink()
            ]
        except FileNotFoundError:  # no pod has logged on this node yet
            return []


def _make_log_directory(path: Path) -> None:
    make_private(path.parent, LOG_DIRECTORY_MODE)
    if path.is_symlink():  # the agent makes none
        path.unlink()
    with hold_directory(path, depth=1, make=LOG_DIRECTORY_MODE) as directory:
        os.fchmod(directory.fd, LOG_DIRECTORY_MODE)


def _remove_files(path: Path, prefix: str) -> None:
    """Remove all files in `path` whose names begin with `prefix`, but no directories.

    Do nothing if `path` is a symbolic link or does not exist.
    """
    try:
        with hold_directory(path) as directory:
            for name in directory.names(prefix):
                directory.unlink(name)
    except OSError as err:
        if err.errno not in _NO_DIRECTORY:
            raise


def _do(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        function(*args, **kwargs)
    except KubeletxError:
        raise
    except OSError as err:
        raise Unavailable(f"cannot change {err.filename}: {err.strerror}") from err
