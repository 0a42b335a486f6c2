"""`Looking`: reads manifest files that have changed, and passes their pods or errors to `ManifestOwnership`."""

from __future__ import annotations

import asyncio
import enum
import os
import stat
from collections.abc import Container, Iterable
from typing import Final

import structlog

from kubeletx.api import Clock, InvalidPod
from kubeletx.api.text import is_printable
from kubeletx.pods.model.sources import FILE

from .files import FileSignature, is_gone, read_manifest, signature_of
from .last_good import LastGoodManifests
from .manifest import Manifest, ManifestReader, OnUnknown
from .manifest_ownership import ManifestOwnership

log = structlog.get_logger(__name__)

_LARGE_BYTES: Final = 256 * 1024
"""A manifest of at least this size in bytes is parsed on a thread."""


class LookOutcome(enum.Enum):
    """Result of `Looking.look` for one manifest file."""

    SETTLED = "settled"
    """Nothing more to do: the file has not changed, its pods were passed on, or its error was reported."""
    GONE = "gone"
    """There is no file at this path, or it is a directory."""
    POSTPONED = "postponed"
    """One of its pods still belongs to another file, whose removal has not taken effect yet.

    Call `look` again when it has.
    """


class Looking:
    """Reads manifest files, and passes their pods or errors to `ManifestOwnership`.

    A file whose signature (`FileSignature`) has not changed is not read again.
    """

    def __init__(
        self,
        *,
        claims: ManifestOwnership,
        reader: ManifestReader,
        clock: Clock,
        remembered: LastGoodManifests | None,
        on_unknown: OnUnknown,
    ) -> None:
        """`remembered`: stores the last valid texts of the manifests; None: they are not stored.

        `on_unknown`: called with each pod that has unknown fields, each time a changed file is read.
        """
        self._on_unknown = on_unknown
        self._claims = claims
        self._reader = reader
        self._clock = clock
        self._remembered = remembered
        self._signatures: dict[str, FileSignature] = {}

    async def look(self, path: str, leaving: Container[str]) -> LookOutcome:
        """Read the file if it has changed since the last call, and pass on its pods or its error.

        `leaving`: paths of removed files whose removal has not taken effect yet; they still own their pods.
        """
        try:
            status = os.stat(path)
        except OSError as err:
            return await self._unreadable(path, err)
        if stat.S_ISDIR(status.st_mode):
            return LookOutcome.GONE
        signature = signature_of(status)
        if self._signatures.get(path) == signature:
            return LookOutcome.SETTLED
        try:
            if not is_printable(path):
                raise InvalidPod(obj=path, field="", problem="the name is not UTF-8", fix="rename the file")
            content = read_manifest(path)
            signature = content.signature
            manifest = await self._parse(path, content.data)
        except InvalidPod as err:
            self._signatures[path] = signature
            await self._refuse(path, err)
            return LookOutcome.SETTLED
        except OSError as err:
            return await self._unreadable(path, err)
        except Exception as err:  # a bug in reading one file must not stop the others
            self._signatures[path] = signature
            log.exception("Failed to read a manifest with a bug", manifest=path)
            problem = f"cannot be read because of a bug: {type(err).__name__}: {err}"
            await self._refuse(path, InvalidPod(obj=path, field="", problem=problem, fix="report the bug"))
            return LookOutcome.SETTLED
        if any(owner in leaving for owner in self._claims.owners(manifest)):
            return LookOutcome.POSTPONED
        self._signatures[path] = signature
        if manifest.objects and path not in self._claims and (stored := await self._stored(path)):
            self._claims.set_earlier(path, stored.objects)
        self._claims.set_pods(path, manifest.pods, manifest.objects)
        for pod, fields in manifest.unknown:
            self._on_unknown(pod, fields)
        if self._remembered is not None and not self._claims.keeps_earlier(path):
            self._remembered.save(path, content.data, signature.mtime_ns)
        return LookOutcome.SETTLED

    def drop(self, path: str) -> None:
        """Handle the removal of a file: remove its pods, its error and its stored text."""
        self._signatures.pop(path, None)
        self._claims.drop(path)
        if self._remembered is not None:
            self._remembered.forget(path)

    async def keep_remembered(self, root: str, problem: str) -> list[str]:
        """Deliver the pods of the stored texts of all manifests at or below path `root`, which cannot be read.

        `problem`: reported as the error of these manifests. Returns their paths.
        """
        known = self._remembered.origins() if self._remembered is not None else []
        paths = [path for path in known if path == root or path.startswith(f"{root}/")]
        for path in paths:
            await self._refuse(path, _unusable(path, problem))
        return paths

    def begin(self, paths: Iterable[str]) -> None:
        """Delete the stored texts of all files except `paths`, the files that exist at the start."""
        if self._remembered is not None:
            self._remembered.keep_only(paths)

    def close(self) -> None:
        """Close the journal in which the last valid texts of manifests are stored."""
        if self._remembered is not None:
            self._remembered.close()

    async def _unreadable(self, path: str, err: OSError) -> LookOutcome:
        if is_gone(path):
            return LookOutcome.GONE
        self._signatures.pop(path, None)
        await self._refuse(path, _unusable(path, err.strerror or str(err)))
        return LookOutcome.SETTLED

    async def _refuse(self, path: str, error: InvalidPod) -> None:
        """Report the error of a manifest; its pods are kept.

        If the manifest has no pods, as after a restart of the agent, the pods of its stored text are delivered first.
        """
        if not self._claims.has_pods(path) and (stored := await self._stored(path)):
            self._claims.set_pods(path, stored.pods, stored.objects)
        self._claims.set_error(path, error)

    async def _stored(self, path: str) -> Manifest | None:
        """Return the stored text of a manifest; None if none is stored or it is not valid any more."""
        data = self._remembered.find(path) if self._remembered is not None else None
        try:
            return await self._parse(path, data) if data is not None else None
        except InvalidPod:
            return None

    async def _parse(self, path: str, data: bytes) -> Manifest:
        now = self._clock.now()

        def read() -> Manifest:
            return self._reader.read(data, origin=path, source=FILE, seen_at=now)

        return read() if len(data) < _LARGE_BYTES else await asyncio.to_thread(read)


def _unusable(path: str, problem: str) -> InvalidPod:
    return InvalidPod(
        obj=path, field="", problem=f"cannot be read: {problem}", fix="make it readable for the agent"
    )
