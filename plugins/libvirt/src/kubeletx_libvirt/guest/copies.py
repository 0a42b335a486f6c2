"""``kubectl cp`` for guests without tar: the plugin reads and writes the archive itself.

    tar [--no-same-permissions] [--no-same-owner] -xmf - [-C DIRECTORY]     `copy_in`
    tar cf - PATH                                                            `copy_out`

Contents are transferred by the guest agent's file calls. Small programs in the guest do the rest: mkdir,
chmod, chown and ln for `copy_in`; find, stat and readlink for `copy_out`. A single file can be copied without
these programs; it then has the guest agent's default mode. Errors name missing programs. Source: kubectl's
pkg/cmd/cp/cp.go.
"""

from __future__ import annotations

import copy
import posixpath
import stat
import tarfile
import time
from collections.abc import Sequence

import msgspec

from kubeletx.api import Channel, Conflict, ExecResult, StreamRequest

from .agent import CannotRun, FileRefused
from .files import Guest, GuestFile
from .session import GuestSession
from .tar_stream import END, TarReader, header_of, padding_of

_EXTRACT = {"-xmf", "xmf", "-xf", "xf"}
_CREATE = {"-cf", "cf"}
_FAILED = 2
"""Exit code of tar if some members failed."""
_NAMES_AT_ONCE = 100
_FILE_MODE = 0o644
_UMASK = 0o022
_ZEROS = 64 << 10


class TarCall(msgspec.Struct, frozen=True):
    """The parsed arguments of a tar command.

    `keeps_modes`, `keeps_owners`: set the modes and owners that the archive has.
    """

    path: str
    """For `copy_out` the source path. For `copy_in` the target directory; empty: the guest agent's working
    directory.
    """
    keeps_modes: bool = True
    keeps_owners: bool = True


def tar_call_of(request: StreamRequest) -> TarCall | None:
    """Parse a tar command as kubectl's cp sends it; None for any other command. Pure."""
    words = list(request.command)
    if not words or words.pop(0) != "tar":
        return None
    if not request.stdin:
        match words:
            case [verb, "-", path] if verb in _CREATE and path:
                return TarCall(path)
        return None
    options = set()
    while words and words[0] in ("--no-same-permissions", "--no-same-owner"):
        options.add(words.pop(0))
    match words:
        case [verb, "-"] if verb in _EXTRACT:
            directory = ""
        case [verb, "-", "-C", directory] if verb in _EXTRACT:
            pass
        case _:
            return None
    return TarCall(directory, "--no-same-permissions" not in options, "--no-same-owner" not in options)


async def copy_in(guest: Guest, call: TarCall, session: GuestSession) -> None:
    """Extract the archive that the session's input contains into the guest, and end the session."""
    archive = TarReader(session.read)
    copies = _CopyIn(guest, call, session, archive)
    async for member in archive.members():
        try:
            await copies.make(member)
        except (FileRefused, _Failed) as error:
            await copies.fail(f"{member.name}: {error.message}")
    await session.end(_FAILED if copies.has_failed else 0)


class _Failed(Conflict):
    """One member of the archive could not be copied."""


class _Lacks(_Failed):
    """The guest does not have a program that is needed."""


class _CopyIn:
    def __init__(self, guest: Guest, call: TarCall, session: GuestSession, archive: TarReader) -> None:
        self._guest = guest
        self._call = call
        self._session = session
        self._archive = archive
        self._directories = {"", call.path.rstrip("/") or "/"}
        self._missing: set[str] = set()
        self.has_failed = False

    async def make(self, member: tarfile.TarInfo) -> None:
        """Create one member of the archive in the guest. Raises FileRefused or _Failed."""
        path = inside(self._call.path, member.name)
        if member.isdir():
            await self._make_directory(path)
            await self._set_mode(path, member)
            return
        await self._make_directory(posixpath.dirname(path))
        if member.issym():
            await self._run("ln", "-sfn", "--", member.linkname, path)
        elif member.islnk():
            await self._run("ln", "-f", "--", inside(self._call.path, member.linkname), path)
        elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            async with self._guest.opened(path, "wb") as file:
                await self._set_mode(path, member)  # before the file has any content
                while data := await self._archive.content():
                    await file.write(data)
        else:
            raise _Failed("neither file, directory nor link")

    async def fail(self, words: str) -> None:
        """Report a member that failed to the client; the copy continues with the other members."""
        self.has_failed = True
        await self._session.say(words)

    async def _make_directory(self, path: str) -> None:
        if path not in self._directories:
            await self._run("mkdir", "-p", "--", path)
            self._directories.add(path)

    async def _set_mode(self, path: str, member: tarfile.TarInfo) -> None:
        mode = member.mode & 0o7777
        if not self._call.keeps_modes:
            mode &= ~_UMASK
        if self._call.keeps_owners:
            await self._perhaps("chown", f"{member.uid}:{member.gid}", "--", path)
        await self._perhaps("chmod", f"{mode:o}", "--", path)

    async def _perhaps(self, program: str, *arguments: str) -> None:
        """Run a program that sets mode or owner. A failure is only reported, since the content matters more.

        A program that the guest does not have is reported once.
        """
        if program in self._missing:
            return
        try:
            await self._run(program, *arguments)
        except _Lacks as error:
            self._missing.add(program)
            await self._session.say(
                f"{error.message}: files have the mode and owner that the guest agent gives"
            )
        except _Failed as error:
            await self.fail(f"{arguments[-1]}: {error.message}")

    async def _run(self, program: str, *arguments: str) -> None:
        done = await _run(self._guest, (program, *arguments))
        if done.exit_code != 0:
            raise _Failed(_words(done))


async def copy_out(guest: Guest, call: TarCall, session: GuestSession) -> None:
    """Write an archive of the path to the session's output, and end the session."""
    has_failed = False
    names, complaint = await _find(guest, call.path)
    if complaint:
        has_failed = True
        await session.send(Channel.STDERR, complaint)
    for at in range(0, len(names), _NAMES_AT_ONCE):
        for info in await _look_at(guest, names[at : at + _NAMES_AT_ONCE]):
            try:
                has_failed |= not await _send(guest, info, session)
            except (FileRefused, _Failed) as error:
                has_failed = True
                await session.say(f"{info.name}: {error.message}")
    await session.send(Channel.STDOUT, END)
    await session.end(_FAILED if has_failed else 0)


async def _find(guest: Guest, path: str) -> tuple[list[str], bytes]:
    """Return the names of all files at and below the path, and find's error output.

    In a guest without find, only the path itself is returned.
    """
    try:
        kinds = ("(", "-type", "f", "-o", "-type", "d", "-o", "-type", "l", ")")
        done = await _run(guest, ("find", path, *kinds, "-print0"))
    except _Lacks:
        return [path], b""
    return [_text(name) for name in done.stdout.split(b"\0") if name], done.stderr


async def _look_at(guest: Guest, names: Sequence[str]) -> list[tarfile.TarInfo]:
    """Return the tar headers of the files, in the same order, without sizes.

    Files that stat does not report are left out.
    """
    try:
        done = await _run(guest, ("stat", "-c", "%f %u %g %Y", "--", *names))
    except _Lacks:
        return [_info(name, f"{stat.S_IFREG | _FILE_MODE:x} 0 0 {time.time():.0f}") for name in names]
    lines = done.stdout.decode(errors="replace").removesuffix("\n").split("\n")
    if len(lines) == len(names):
        return [_info(name, line) for name, line in zip(names, lines, strict=True)]
    if len(names) == 1:  # it has just been removed
        return []
    return [info for name in names for info in await _look_at(guest, (name,))]


def _info(name: str, words: str) -> tarfile.TarInfo:
    """Parse one line of stat's output to a tar header. Raises _Failed for anything else.

    Any program in the guest may be called stat.
    """
    info = tarfile.TarInfo(name)
    try:
        mode, uid, gid, changed_at = words.split()
        bits = int(mode, 16)
        info.mode, info.uid, info.gid, info.mtime = stat.S_IMODE(bits), int(uid), int(gid), int(changed_at)
    except (ValueError, OverflowError) as error:
        raise _Failed(f"the guest's stat said {words[:40]!r}") from error
    if stat.S_ISDIR(bits):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(bits):
        info.type = tarfile.SYMTYPE
    return info


async def _send(guest: Guest, info: tarfile.TarInfo, session: GuestSession) -> bool:
    """Send header and content of one file; returns False if the content could not be read to its end.

    Raises FileRefused or _Failed only before anything is sent.
    """
    path = info.name
    archived = copy.copy(info)
    archived.name = path.lstrip("/") or "."
    if info.issym():
        archived.linkname = _text((await _run(guest, ("readlink", "-n", path))).stdout)
    if not info.isreg():
        await session.send(Channel.STDOUT, header_of(archived))
        return True
    async with guest.opened(path, "rb") as file:
        archived.size = await file.measure()
        data = await file.read() if archived.size else b""
        await session.send(Channel.STDOUT, header_of(archived))
        left = archived.size
        while left and data:
            await session.send(Channel.STDOUT, data[:left])
            left = max(0, left - len(data))
            data = await _more(file, path, session) if left else b""
    is_whole = not left
    if not is_whole:
        await session.say(f"{path}: {left} bytes could not be read and are replaced by zeros")
    while left:
        zeros = bytes(min(left, _ZEROS))
        await session.send(Channel.STDOUT, zeros)
        left -= len(zeros)
    await session.send(Channel.STDOUT, padding_of(archived.size))
    return is_whole


async def _more(file: GuestFile, path: str, session: GuestSession) -> bytes:
    try:
        return await file.read()
    except FileRefused as error:
        await session.say(f"{path}: {error.message}")
        return b""


def inside(directory: str, name: str) -> str:
    """Return the path of a member below `directory`. Raises _Failed if the name contains ``..``. Pure."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _Failed("names a place outside of the directory")
    return posixpath.join(directory, *parts) if parts else directory or "."


async def _run(guest: Guest, command: Sequence[str]) -> ExecResult:
    try:
        return await guest.run(command)
    except CannotRun as error:
        raise _Lacks(f"the guest has no program {command[0]!r}") from error


def _words(done: ExecResult) -> str:
    return done.stderr.decode(errors="replace").strip() or f"exit code {done.exit_code}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
