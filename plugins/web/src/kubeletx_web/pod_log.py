"""The log of a container as harmless lines, in pieces of bounded size."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from kubeletx.api import KubeletxError
from kubeletx.kube.types.core import Pod

from .agent import Agent, pod_path
from .words import visible

TAIL: Final = 200
"""Lines that a page begins with."""
TAIL_SECONDS: Final = 5.0
"""Longest time for which a page waits for them."""
LONGEST: Final = 2000
"""A line is cut into pieces of this number of bytes."""
PAUSE_SECONDS: Final = 0.2
"""Time between two messages: a container that writes much gives fewer, larger ones, and the agent reads no faster."""
_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")


class LogTail(msgspec.Struct, frozen=True):
    """The end of a log. `containers`: all of the pod. `note`: why there are no lines; else empty."""

    container: str
    containers: Sequence[str]
    previous: bool
    lines: Sequence[str] = ()
    note: str = ""


def harmless(line: bytes) -> str:
    """Return the line as text without colours, and with control characters and changes of direction made visible."""
    text = _COLOURS.sub("", line.removesuffix(b"\r").decode(errors="replace"))
    return visible(text.replace("\r", "\u240d"))


def containers(pod: Pod) -> Sequence[str]:
    """Return the names of everything in the pod that has a log; what a reader most probably looks for stands first."""
    if pod.status.virtual_machine_status is not None:
        return (pod.status.virtual_machine_status.name,)
    spec = pod.spec
    return [each.name for each in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)]


async def log_tail(agent: Agent, pod: Pod, container: str, *, previous: bool) -> LogTail:
    """Return the last `TAIL` lines of a container's log; of the first container if the pod has none of this name."""
    names = containers(pod)
    container = container if container in names else next(iter(names), "")
    query = {"container": container, "tailLines": str(TAIL)} | ({"previous": "1"} if previous else {})
    lines: deque[str] = deque(maxlen=TAIL)
    note = ""
    pieces = agent.chunks(pod_path(pod.namespace, pod.name, "log"), query)
    try:
        async with asyncio.timeout(TAIL_SECONDS), aclosing(log_lines(pieces)) as batches:
            async for batch in batches:
                lines.extend(batch)
    except TimeoutError:
        note = "The agent did not answer in time."
    except KubeletxError as error:
        note = harmless(str(error).encode(errors="replace"))
    if not lines and not note:
        note = "The log is empty."
    return LogTail(container, names, previous, lines=[*lines], note=note)


async def log_lines(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[list[str], None]:
    """Yield the lines of a log in batches as they arrive. An incomplete line waits for its end, or for `LONGEST` bytes."""
    rest = b""
    async with aclosing(pieces):
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            batch = [
                harmless(line[at : at + LONGEST])
                for line in whole
                for at in range(0, len(line) or 1, LONGEST)
            ]
            while len(rest) > LONGEST:
                batch.append(harmless(rest[:LONGEST]))
                rest = rest[LONGEST:]
            if batch:
                yield batch
    if rest:
        yield [harmless(rest)]


async def log_events(
    agent: Agent, path: str, container: str, *, pause_seconds: float = PAUSE_SECONDS
) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events: the last lines of a log, then each new one; each event has a JSON list of lines.

    The last event is ``end``, with the reason. A browser that reads slowly makes the agent send slowly.
    """
    query = {"container": container, "tailLines": str(TAIL), "follow": "1"}
    why = ""
    yield b": \n\n"
    try:
        async with aclosing(log_lines(agent.chunks(path, query))) as batches:
            async for batch in batches:
                yield b"data: " + msgspec.json.encode(batch) + b"\n\n"
                await asyncio.sleep(pause_seconds)
    except KubeletxError as error:
        why = harmless(str(error).encode(errors="replace"))
    yield b"event: end\ndata: " + msgspec.json.encode(why) + b"\n\n"
