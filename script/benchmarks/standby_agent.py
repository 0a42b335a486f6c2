"""An agent that the benchmarks of standby control: the whole agent, and a Unix socket for requests in memory.

``python -m script.benchmarks.standby_agent FLAGS`` runs ``kubeletx FLAGS``. Only the agent calls
`PodManager.ask_power` and the plugin. The socket makes these calls possible from another process. The path of the
socket is in the environment variable `SOCKET_VARIABLE`. Each line is an `Order`; each answer is a `Done`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from kubeletx.agent.config.tree import AgentConfig
    from kubeletx.agent.host.exit_guard import ExitGuard
    from kubeletx.agent.lifecycle import Assembly
    from kubeletx.pods import PodWorker

SOCKET_VARIABLE: Final = "KUBELETX_BENCH_SOCKET"
OWNER: Final = "bench"
_STATES: Final = {"standby": "PAUSED", "hibernated": "SUSPENDED", "running": "RUNNING"}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `pods`: names without the node's name.

    `verb`: standby, hibernated or running: `ask_power` for all pods; ``wait STATE``: wait until the agent shows all
    their containers in that state and changes none of them; freeze or thaw: the plugin's call for each container, all
    at once; after them the agent is asked for the same state, so that it does not undo them.
    """

    verb: str
    pods: tuple[str, ...]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to an order, with monotonic times in nanoseconds. `error`: empty if there was none."""

    began_ns: int = 0
    ended_ns: int = 0
    error: str = ""


class Control:
    """Carries out orders on an assembled agent."""

    def __init__(self, parts: Assembly) -> None:
        """`parts`: of the agent in this process."""
        self._parts = parts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the orders of one connection, one after the other."""
        with suppress(ConnectionError):
            while line := await reader.readline():
                order = msgspec.json.decode(line, type=Order)
                try:
                    done = await self._carry_out(order)
                except Exception as error:  # noqa: BLE001 - the benchmark shows it
                    done = Done(error=f"{order.verb}: {type(error).__name__}: {error}")
                writer.write(msgspec.json.encode(done) + b"\n")
                await writer.drain()
        writer.close()

    async def _carry_out(self, order: Order) -> Done:
        workers = self._workers(order.pods)
        if order.verb.startswith("wait "):
            await self._wait(workers, _STATES[order.verb.removeprefix("wait ")])
            began = ended = time.monotonic_ns()
        elif order.verb in _STATES:
            began = time.monotonic_ns()
            self._ask(workers, order.verb)
            ended = time.monotonic_ns()
        else:
            calls = [self._call(worker, order.verb) for worker in workers]
            began = time.monotonic_ns()
            await asyncio.gather(*(call() for call in calls))
            ended = time.monotonic_ns()
            self._ask(workers, "standby" if order.verb == "freeze" else "running")
        return Done(began_ns=began, ended_ns=ended)

    def _ask(self, workers: list[PodWorker], word: str) -> None:
        from kubeletx.pods.workloads.power import Power

        power = Power(word)
        for worker in workers:
            self._parts.manager.ask_power(worker.uid, power, OWNER)

    def _workers(self, pods: tuple[str, ...]) -> list[PodWorker]:
        suffix = f"-{self._parts.node.reporter.name}"
        known = {
            worker.desired.pod.metadata.name.removesuffix(suffix): worker
            for worker in self._parts.manager.workers.values()
        }
        return [known[name] for name in pods]

    async def _wait(self, workers: list[PodWorker], state: str) -> None:
        for worker in workers:
            while worker.is_unit_changing or not _is_in(worker, state):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def _call(self, worker: PodWorker, verb: str) -> Any:
        from kubeletx.api import SupportsStandby

        assert worker.facts.runtime is not None
        assert worker.facts.snapshot is not None
        able = self._parts.registry.get(worker.facts.runtime).capability(SupportsStandby)
        assert able is not None
        call = able.freeze if verb == "freeze" else able.thaw
        return partial(call, worker.facts.snapshot.units[0].id)


def _is_in(worker: PodWorker, state: str) -> bool:
    snapshot = worker.facts.snapshot
    return snapshot is not None and bool(snapshot.units) and snapshot.units[0].state.name == state


def main() -> None:
    """Run ``kubeletx`` with a control socket, when this module is the program."""
    from kubeletx.cli import main as cli
    from kubeletx.cli.options import run

    run_agent = run._run

    async def run_with_control(config: AgentConfig, guard: ExitGuard) -> int:
        agent = import_module("kubeletx.agent.main")
        agent.assemble = partial(_assembled, agent.assemble)  # type: ignore[attr-defined]
        return await run_agent(config, guard)

    run._run = run_with_control
    cli.main()


@asynccontextmanager
async def _assembled(assemble: Any, *arguments: Any, **named: Any) -> AsyncIterator[Assembly]:
    async with assemble(*arguments, **named) as parts:
        control = Control(parts)
        async with await asyncio.start_unix_server(control.serve, os.environ[SOCKET_VARIABLE]):
            yield parts


if __name__ == "__main__":
    main()
