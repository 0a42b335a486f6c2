"""Reads a whole log at once."""

from __future__ import annotations

from pathlib import Path

from kubeletx.pods.logs.output import LogSelection
from kubeletx.pods.logs.reader import LogReader


async def read_all(reader: LogReader, path: Path, options: LogSelection) -> bytes:
    return b"".join([piece async for piece in reader.read(path, options)])
