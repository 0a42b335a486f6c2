"""An agent that notes when commands about sessions arrive and when reports of sessions leave.

``python -m script.benchmarks.session_agent FLAGS`` runs ``kubeletx FLAGS``. At its end it writes `Moments` to the file
that the environment variable `FILE_VARIABLE` names.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import msgspec

FILE_VARIABLE: Final = "KUBELETX_BENCH_MOMENTS"


class Moments(msgspec.Struct, frozen=True):
    """Monotonic nanoseconds by session: arrival of SESSION_OPEN, and put of the first report that it is available."""

    asked: dict[str, int] = {}
    told: dict[str, int] = {}


def main() -> None:
    """Run ``kubeletx``, and write the moments when it ends."""
    from kubeletx.cli import main as cli
    from kubeletx.fornax import wire
    from kubeletx.fornax.changes import Kind
    from kubeletx.fornax.link import Link
    from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

    arrived: list[tuple[int, bytes]] = []
    left: list[tuple[int, bytes]] = []
    parse, message_of = wire.parse, Link._message

    def noted_parse(data: bytes, node: str) -> pb.FornaxCoreMessage:
        arrived.append((time.monotonic_ns(), data))
        return parse(data, node)

    def noted_message(link: Link, step: Any) -> Any:
        if step.kind is Kind.CHANGE:
            left.append((time.monotonic_ns(), step.message))
        return message_of(link, step)

    wire.parse = noted_parse
    Link._message = noted_message  # type: ignore[method-assign,assignment] # the parameters are the same
    try:
        cli.main()
    finally:
        moments = Moments()
        for at, data in arrived:
            message = pb.FornaxCoreMessage.FromString(data)
            if message.messageType == pb.SESSION_OPEN:
                moments.asked.setdefault(message.sessionOpen.sessionIdentifier, at)
        for at, data in left:
            message = pb.FornaxCoreMessage.FromString(data)
            reports = (
                [message.sessionState] if message.HasField("sessionState") else message.podState.sessionStates
            )
            for one in reports:
                metadata = one.session.metadata
                if one.session.status.sessionStatus == "Available":
                    moments.told.setdefault(f"{metadata.namespace}/{metadata.name}", at)
        Path(os.environ[FILE_VARIABLE]).write_bytes(msgspec.json.encode(moments))


if __name__ == "__main__":
    main()
