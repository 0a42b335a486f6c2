"""An agent whose sessions a test opens, closes and lists, through a socket in the agent's root directory.

``python -m tests.integration.support.session_agent ARGUMENTS`` runs like ``kubeletx ARGUMENTS``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import PrivateAgent

ROOT = Path(__file__).parents[3]
SOCKET = "sessions-of-a-test.sock"


class SessionAgent:
    """The test's side: one JSON line each way. `agent`: started by the test, see `run_with_door`."""

    def __init__(self, agent: PrivateAgent) -> None:
        self.agent = agent

    def call(self, verb: str, **fields: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.agent.root_dir / SOCKET))
            connection.sendall(json.dumps({"verb": verb, **fields}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())

    def states(self) -> dict[str, str]:
        """State of each session by ID."""
        found: dict[str, str] = self.call("list")
        return found

    def wait_for(self, is_wanted: Callable[[dict[str, str]], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_wanted(found := self.states()):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


def run_with_door(agent: PrivateAgent, monkeypatch: pytest.MonkeyPatch) -> SessionAgent:
    """Make the next starts of `agent` run this module; it needs ``PYTHONPATH`` in its environment."""
    arguments = agent.argv()[1:]
    argv = [sys.executable, "-m", __name__, *arguments]
    monkeypatch.setattr(agent, "argv", lambda: argv)
    return SessionAgent(agent)


def main() -> None:
    from kubeletx.agent import assembly
    from kubeletx.agent.parts.part import Part
    from kubeletx.cli.main import main as run
    from kubeletx.sessions.model import OpenRequest
    from kubeletx.sessions.service import Sessions

    class Door:
        def __init__(self, sessions: Sessions, path: Path) -> None:
            self._sessions = sessions
            self._path = path
            self._server: asyncio.Server | None = None

        async def start(self) -> None:
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
            self._server = await asyncio.start_unix_server(self._answer, self._path)

        async def stop(self) -> None:
            if self._server is not None:
                self._server.close()

        async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = json.loads(await reader.readline())
            match asked.pop("verb"):
                case "open":
                    answer: Any = (await self._sessions.open(OpenRequest(**asked))).state
                case "close":
                    answer = (await self._sessions.close(**asked)).state
                case _:
                    answer = {session.id: session.state for session in self._sessions.all()}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()

    make = vars(assembly)["make_sessions"]

    def make_with_door(ctx: Any, *others: Any) -> Sessions:
        sessions: Sessions = make(ctx, *others)
        ctx.made.add(Part(name="door", servers=(Door(sessions, ctx.config.root_dir / SOCKET),)))
        return sessions

    vars(assembly)["make_sessions"] = make_with_door
    run()


if __name__ == "__main__":
    main()
