"""Running a command as nobody, on machines whose Python is below a directory that only root may enter.

In a mount namespace of its own, such a directory is covered by an empty one that holds just what the command
needs: the Python installation, the virtual environment, the sources.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import kubeletx

NOBODY = 65534
_SEARCH_BY_OTHERS = 0o001


def as_nobody(argv: Sequence[str], work: Path) -> list[str]:
    """The command line that runs `argv` as nobody. `work`: a directory for mount points and as HOME."""
    script = []
    for closed, needed in _closed().items():
        for number, path in enumerate(needed):
            hold = work / f"hold-{number}"
            script += [f"mkdir -p {_q(hold)}", f"mount --bind {_q(path)} {_q(hold)}"]
        script.append(f"mount -t tmpfs -o mode=755 none {_q(closed)}")
        for number, path in enumerate(needed):
            script += [f"mkdir -p {_q(path)}", f"mount --move {_q(work / f'hold-{number}')} {_q(path)}"]
    become = f"exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env HOME={_q(work)}"
    script.append(f"{become} {shlex.join(argv)}")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(script)]


def _closed() -> dict[Path, list[Path]]:
    """Directories that others may not enter, each with what is needed from below it."""
    found: dict[Path, list[Path]] = {}
    sources = Path(kubeletx.__file__).resolve().parent.parent
    for path in dict.fromkeys((Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), sources)):
        for parent in reversed((path, *path.parents)):
            if not parent.stat().st_mode & _SEARCH_BY_OTHERS:
                found.setdefault(parent, []).append(path)
                break
    return found


def _q(path: Path) -> str:
    return shlex.quote(str(path))
