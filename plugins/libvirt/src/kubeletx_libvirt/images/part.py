"""`Part`: a partial download. It is hashed as it grows, and can be continued after a crash.

The received bytes are in ``partial/<hash of the source>/data``. The file ``data.json`` beside it describes
the whole file: its URL, validators and length.

Everything blocks and runs on the store's threads.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kubeletx.linux.files import replace_unflushed

from .importing import private_opener
from .index import Validators
from .unpack import CHUNK_BYTES


class PartState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of the file that is being downloaded, stored beside the received bytes.

    `total_bytes`: length of the whole file; None if the server sent no length.
    """

    url: str
    validators: Validators = Validators()
    total_bytes: int | None = None


class Part:
    """A partial download: the received bytes in a file, their hashes, and what a later try needs to continue.

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
        """Load what an earlier try left; a partial download of another URL is removed."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            state = msgspec.json.decode(self._state_path.read_bytes(), type=PartState)
            size = self.path.stat().st_size
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            state, size = None, 0
        if state is None or state.url != url or (state.total_bytes is not None and size > state.total_bytes):
            self.discard()
            return
        self.state, self.size = state, size

    def restart(self, state: PartState) -> None:
        """Remove the received bytes and open an empty file for the content that `state` describes."""
        self.discard()
        replace_unflushed(self._state_path, msgspec.json.encode(state))
        self.state = state
        self._file = open(self.path, "wb", opener=private_opener)  # noqa: SIM115 - closed by close()
        self._hashes = {name: hashlib.new(name) for name in self._algorithms}

    def resume(self, offset: int) -> None:
        """Prepare to continue at `offset`, which is at most `size`.

        Bytes from `offset` on are removed; the bytes before it are hashed.
        """
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
        assert self._file is not None
        self._file.write(chunk)
        self._file.flush()
        for digest in self._hashes.values():
            digest.update(chunk)
        self.size += len(chunk)

    def digest(self, algorithm: str) -> str:
        """Return the digest of all written bytes, in lower-case hex."""
        value: str = self._hashes[algorithm].hexdigest()
        return value

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self) -> None:
        self.close()
        for path in (self.path, self._state_path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self.state, self.size, self._hashes = None, 0, {}
