"""``kubeletx cp``: copies files and directories to and from containers, by ``tar`` in the container, through exec.

A container's archive is not trusted: only directories and regular files are written, and each below the target, also
if a symbolic link is in its way.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import click

from kubeletx.api import Conflict, InvalidConfig, KubeletxError

from ...connection.client import AgentClient, pod_path
from ...connection.pods import BriefPod
from ...connection.remote import choose_container
from ...connection.streams import run_remote
from ...options.common import in_namespace
from ...options.completing import container_option
from ...options.go_flags import boolean, command


class Place(NamedTuple):
    """One argument: a path of this machine, or of a pod. `pod` empty: of this machine."""

    path: str
    pod: str = ""
    namespace: str = ""


def parse_place(text: str) -> Place:
    """Parse ``[[NAMESPACE/]POD:]PATH``. A local path with a colon begins with ``/`` or ``.``. Raises UsageError."""
    before, colon, path = text.partition(":")
    if not colon or before.startswith(("/", ".")):
        return Place(text)
    namespace, _, pod = before.rpartition("/")
    if not pod or not path or "/" in namespace:
        raise click.UsageError(f"{text!r} is not [[NAMESPACE/]POD:]PATH")
    return Place(path, pod, namespace)


@command(short_help="Copy files to and from containers.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@container_option()
@boolean("--no-preserve", help="Do not keep owner and permissions in the container.")
@in_namespace
def cp(
    agent: AgentClient, source: str, target: str, container: str, no_preserve: bool, namespace: str
) -> None:
    """Copy a file or directory: 'cp POD:/PATH FILE' or 'cp FILE POD:/PATH'. The container needs tar.

    Links and devices of a container are not copied.
    """
    places = parse_place(source), parse_place(target)
    remote = [place for place in places if place.pod]
    if len(remote) != 1:
        which = "a local" if remote else "a remote"
        raise click.UsageError(
            f"one of SOURCE and TARGET must be {which} path; write POD:PATH for a remote one"
        )
    where = remote[0].namespace or namespace
    pod = agent.get(pod_path(where, remote[0].pod), BriefPod)
    files = ContainerFiles(agent, where, pod.name, choose_container(pod, container))
    if places[0].pod:
        files.download(places[0].path, _below(Path(places[1].path), places[0].path))
        return
    local, inside = Path(places[0].path), places[1].path
    if not local.exists():
        raise click.UsageError(f"{local} does not exist in this machine")
    if inside.endswith("/") or files.is_directory(inside):
        own_name = local.name if local.name not in ("", "..") else local.resolve().name
        inside = f"{inside.rstrip('/')}/{own_name}"
    files.upload(local, inside, preserve=not no_preserve)


def _below(target: Path, source: str) -> Path:
    return target / PurePosixPath(source).name if target.is_dir() else target


class ContainerFiles:
    """Files of one container; `container` empty: the pod's default one."""

    def __init__(self, agent: AgentClient, namespace: str, pod: str, container: str) -> None:
        self._agent = agent
        self._path = pod_path(namespace, pod, "exec")
        self._container = container

    def is_directory(self, path: str) -> bool:
        """Return True if the container has a directory at `path`."""
        with Path(os.devnull).open("r+b") as null:
            return self._run(("test", "-d", path), output=null.fileno(), errors=null.fileno()) == 0

    def download(self, source: str, target: Path) -> None:
        """Copy the file or directory `source` of the container to `target`. Raises Conflict if that fails."""
        name = PurePosixPath(source).name
        command = ("tar", "cf", "-", "-C", str(PurePosixPath(source).parent), f"./{name}")
        reading, writing = _pipe()
        with ThreadPoolExecutor(1) as pool, reading:
            remote = pool.submit(self._run, command, output=writing.fileno())
            remote.add_done_callback(lambda _: writing.close())
            with _checked(remote, reading):
                unpack(reading, name, target)

    def upload(self, source: Path, target: str, *, preserve: bool) -> None:
        """Copy a file or directory to `target` in the container. `preserve`: with owner and permissions.

        Raises Conflict if that fails.
        """
        options = () if preserve else ("--no-same-permissions", "--no-same-owner")
        command = ("tar", *options, "-xmf", "-", "-C", str(PurePosixPath(target).parent))
        reading, writing = _pipe()
        with ThreadPoolExecutor(1) as pool:
            remote = pool.submit(self._run, command, stdin=reading.fileno())
            remote.add_done_callback(lambda _: reading.close())
            with (
                _checked(remote, writing),
                writing,
                tarfile.open(fileobj=writing, mode="w|") as archive,
            ):
                archive.add(source, PurePosixPath(target).name)

    def _run(
        self, command: Sequence[str], *, stdin: int | None = None, output: int = 1, errors: int = 2
    ) -> int:
        query = [("command", word) for word in command]
        query += [("container", self._container), ("stdout", "1"), ("stderr", "1")]
        query += [("stdin", str(int(stdin is not None))), ("tty", "0")]
        return run_remote(
            self._agent,
            self._path,
            query,
            stdin=stdin is not None,
            descriptors=(stdin or 0, output, errors),
        )


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


@contextmanager
def _checked(remote: Future[int], pipe: IO[bytes]) -> Iterator[None]:
    """Context manager of the local half of a copy: at its end, waits for the command and raises the error that counts.

    This is the agent's error, else that of the local half, of which the command's exit code is a consequence.
    """
    problem: Exception | None = None
    try:
        yield
    except (tarfile.TarError, OSError, KubeletxError) as error:
        problem = error
    with suppress(OSError):
        pipe.close()
    code = 0
    with suppress(OSError):  # the local half has ended before
        code = remote.result()
    if isinstance(problem, KubeletxError):
        raise problem
    if code:
        raise Conflict(f"tar in the container ended with exit code {code}; copying needs tar there")
    if problem is not None:
        raise Conflict(f"the copy failed: {problem}") from problem


def unpack(stream: IO[bytes], name: str, target: Path) -> None:
    """Write the file or directory `name` of a tar archive as `target`.

    Links and devices are left out with a warning. Raises InvalidConfig for a path outside of `target`.
    """
    root = target.resolve()
    written: dict[PurePosixPath, Path] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            inner = _inner(member.name, name)
            path = target / inner
            if not path.resolve().is_relative_to(root):
                raise _escapes(member.name)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg() and (content := archive.extractfile(member)) is not None:
                _write(path, content, member.mode)
                written[inner] = path
            elif member.islnk() and (earlier := written.get(_inner(member.linkname, name))) is not None:
                with earlier.open("rb") as copied:
                    _write(path, copied, earlier.stat().st_mode)
            else:
                what = f"link to {member.linkname!r}" if member.issym() or member.islnk() else "special file"
                click.echo(f"Warning: skipping {member.name!r}: {what}", err=True)


def _inner(path: str, name: str) -> PurePosixPath:
    """Return the path of a member below `name`; raise InvalidConfig if it is not below it."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or (name and parts.parts[:1] != (name,)):
        raise _escapes(path)
    return PurePosixPath(*parts.parts[1 if name else 0 :])


def _escapes(path: str) -> InvalidConfig:
    return InvalidConfig(
        field="archive",
        problem=f"{path!r} is outside of the copied directory",
        fix="the container is not to be trusted; files after this one are not copied",
    )


def _write(path: Path, content: IO[bytes], mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode & 0o777)
    with os.fdopen(descriptor, "wb") as out:
        shutil.copyfileobj(content, out)
