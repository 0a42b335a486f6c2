"""`Part`: a file being fetched, hashed as it grows, and continued after a crash.

partial/<hash of the source>/data holds the received bytes, state.json next to it the validators and length of the whole
file.

Everything blocks and runs on the store's threads.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .importing import private_opener
from .index import Validators
from .unpack import CHUNK_BYTES


class PartState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of a partial download, kept beside its data.

    `total_bytes`: None if the server sent no length.
    """

    url: str
    validators: Validators = Validators()
    total_bytes: int | None = None


class Part:
    """A partial download: its bytes in a file, their hashes, and the state with which a later try resumes.

    `name`: name of the file in `directory`. `algorithms`: hashes to compute.
    """

    def __init__(
        self, directory: Path, *, name: str = "data", algorithms: tuple[str, ...] = ("sha256",)
    ) -> None:
        self.path = directory / name
        self.state: PartState | None = None
        self.size = 0
        self._state_path = directory / f"{name}.json"
        self._algorithms = algorithms
        self._hashes: dict[str, Any] = {}
        self._file: BinaryIO | None = None

    def load(self, url: str) -> None:
        """Load what an earlier try left; a partial file of another URL is dropped."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            state = msgspec.json.decode(self._state_path.read_bytes(), type=PartState)
            size = self.path.stat().st_size
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            state, size = None, 0
        if state is None or state.url != url or (state.total_bytes is not None and size > state.total_bytes):
            self._forget()
            return
        self.state, self.size = state, size

    def restart(self, state: PartState) -> None:
        """Drop the received bytes and begin an empty file for the content that `state` describes."""
        self._forget()
        self._state_path.write_bytes(b"")
        self._state_path.chmod(0o600)
        self._state_path.write_bytes(msgspec.json.encode(state))
        self.state = state
        self._file = open(self.path, "wb", opener=private_opener)  # noqa: SIM115 - closed by close()
        self._hashes = {name: hashlib.new(name) for name in self._algorithms}

    def resume(self, offset: int) -> None:
        """Continue at `offset`, at most `size`: later bytes are dropped, those before it are hashed."""
        if self._file is not None and offset == self.size:
            return
        self.close()
        self._file = self.path.open("r+b")
        self._file.truncate(offset)
        self._hashes = {name: hashlib.new(name) for name in self._algorithms}
        while chunk := self._file.read(CHUNK_BYTES):
            for digest in self._hashes.values():
                digest.update(chunk)
        self.size = offset

    def write(self, chunk: bytes) -> None:
        """Append a chunk to the file and to the hashes."""
        assert self._file is not None
        self._file.write(chunk)
        self._file.flush()
        for digest in self._hashes.values():
            digest.update(chunk)
        self.size += len(chunk)

    def digest(self, algorithm: str) -> str:
        """Digest of all written bytes, in lower-case hex."""
        value: str = self._hashes[algorithm].hexdigest()
        return value

    def close(self) -> None:
        """Close the file and keep what was written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self) -> None:
        """Remove the partial download."""
        self._forget()

    def _forget(self) -> None:
        self.close()
        for path in (self.path, self._state_path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self.state, self.size, self._hashes = None, 0, {}
