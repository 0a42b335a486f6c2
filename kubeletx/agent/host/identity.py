"""Identity of this agent: the agent id, stored before the first sandbox is created, and the root directory's lock.

`make_directory` makes the root directory and others that the configuration names.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from kubeletx.api import InvalidConfig
from kubeletx.linux.files import replace_file
from kubeletx.linux.locks import LockHeld, take_lock
from kubeletx.volumes.layout import pods_dir

ID_FILE = "agent-id"
LOCK_FILE = "lock"


def ensure_agent_id(root_dir: Path) -> tuple[str, bool]:
    """Return the agent id, and True if it was stored by an earlier start. If there is none, store a new id.

    The id is the value of label ``kubeletx.io/agent-id`` of all sandboxes and containers that the agent creates. It is
    in a file, not in the database, so that the agent recognises its pods after the loss of the database (DECISIONS 7).

    Raises InvalidConfig if the file has no valid id, or if there is no file but the root directory has pods of another
    agent: an agent with a new id would treat them as leftovers, and start the cluster's pods a second time.
    """
    path = root_dir / ID_FILE
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        _refuse_pods_of_another(root_dir)
        return _new_agent_id(path), False
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        uuid.UUID(text)
    except ValueError:
        raise _damaged(path, f"{text[:40]!r} is not a UUID") from None
    return text, True


def _damaged(path: Path, problem: str) -> InvalidConfig:
    fix = "restore the file: without it this node's running pods are not recognised as ours"
    return InvalidConfig(obj=str(path), field="agent-id", problem=problem, fix=fix)


def _refuse_pods_of_another(root_dir: Path) -> None:
    directory = pods_dir(root_dir)  # a kubelet's has the same name
    try:
        pods = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"cannot look for pods of another agent in {directory}: {error.strerror}",
            fix="make it a directory that this user may read, or move it away if it holds no pods",
        ) from error
    if pods:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"{directory} holds pods that another agent made, such as {pods[0]}",
            fix="drain the node, end them with the kubelet that made them ('kubeadm reset') and empty the directory, "
            f"or restore {root_dir / ID_FILE} if they are this agent's",
        )


def _new_agent_id(path: Path) -> str:
    text = str(uuid.uuid4())
    try:
        replace_file(path, f"{text}\n".encode(), 0o644)
    except OSError as error:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"cannot use {path.parent}: {error.strerror}",
            fix="free space there or make it writable: without its id this agent cannot mark its pods",
        ) from error
    return text


def make_directory(path: Path, field: str, mode: int = 0o755) -> Path:
    """Make the directory and its missing parents, and return its path.

    Raises InvalidConfig, naming the setting `field`, if the directory cannot be made or this user may not write to it.
    """
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
        why = "Permission denied"
    except OSError as error:
        usable, why = False, error.strerror or str(error)
    if not usable:
        raise InvalidConfig(
            field=field,
            problem=f"cannot use {path}: {why}",
            fix="choose a directory this user may write, or run as root",
        )
    return path


def lock_root(root_dir: Path) -> int:
    """Make the root directory if it is missing, and lock it for this process.

    Returns the file descriptor of the lock; closing it releases the lock. Raises InvalidConfig if another agent holds
    the lock or the directory cannot be used.
    """
    make_directory(root_dir, "--root-dir", 0o750)
    try:
        return take_lock(root_dir / LOCK_FILE)
    except LockHeld as error:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"another agent runs on {root_dir}: {error.owner}",
            fix="stop it, or give this one a root directory of its own",
        ) from None
    except OSError as error:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"cannot use {root_dir}: {error.strerror}",
            fix="choose a directory this user may write, or run as root",
        ) from error


def forget_failed_start(root_dir: Path, database: Path, *, made_directory: bool) -> None:
    """Remove the agent id that a failed first start has stored, and the root directory if the start made it.

    They stay if the start came as far as `database` or the pods' directory, or if another agent uses the directory. An
    agent id without a database would look to the next start like a lost database.
    """
    if not root_dir.is_dir():
        return
    try:
        lock = lock_root(root_dir)
    except InvalidConfig:
        return
    try:
        if database.exists() or pods_dir(root_dir).exists():
            return
        if made_directory:
            shutil.rmtree(root_dir, ignore_errors=True)
        else:
            (root_dir / ID_FILE).unlink(missing_ok=True)
    finally:
        os.close(lock)
