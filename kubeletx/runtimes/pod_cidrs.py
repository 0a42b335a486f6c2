"""`PodCidrs`: passes the ranges of addresses that the node's pods get to the runtimes, as a kubelet does.

A runtime gets them when they change, and when it can be reached again; `SupportsNetworkConfig` says what it does with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from kubeletx.api import Clock, KubeletxError, PodUid, RuntimeEvent, RuntimeName, SupportsNetworkConfig
from kubeletx.api.waiting import sleep_or
from kubeletx.kube.types.node import Node

from .handles.handle import RuntimeHandle
from .registry import RuntimeRegistry

log = structlog.get_logger(__name__)

RETRY_SECONDS = 10.0


class PodCidrs:
    """Passes the pods' address ranges to every runtime with `SupportsNetworkConfig`; the last caller's ranges count."""

    def __init__(self, registry: RuntimeRegistry, *, clock: Clock, cidrs: tuple[str, ...] = ()) -> None:
        """`cidrs`: ranges of the configuration, until a cluster or a FornaxCore gives others."""
        self._registry = registry
        self._clock = clock
        self._cidrs = cidrs
        self._applied: dict[RuntimeName, tuple[str, ...]] = {}
        """Ranges that reachable runtimes have."""
        self._problems: dict[RuntimeName, str] = {}
        self._passing = asyncio.Lock()
        self._news = asyncio.Event()
        registry.subscribe(self)

    async def apply(self, cidrs: Sequence[str]) -> None:
        """Pass these ranges to the runtimes; return when each reachable one has answered or failed.

        `run` tries failed ones again. `cidrs`: one for each address family, such as ``10.1.2.0/24``.
        """
        self._cidrs = tuple(cidrs)
        await self._pass()
        self._news.set()

    def node_changed(self, node: Node | None) -> None:
        """Take the ranges that a cluster gave its Node; without any, the runtimes keep theirs."""
        spec = node.spec if node is not None else None
        if spec is not None and (cidrs := spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())):
            self._cidrs = cidrs
            self._news.set()

    async def run(self) -> None:
        """Pass the ranges to runtimes that connect or have failed, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while not await self._pass():
                await sleep_or(self._clock, RETRY_SECONDS, self._news)
                self._news.clear()

    # --- RuntimeListener ---

    def runtime_changed(self, name: RuntimeName) -> None:
        """See `RuntimeListener`."""
        self._news.set()

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        """See `RuntimeListener`; pods do not matter here."""

    # --- private ---

    async def _pass(self) -> bool:
        """Pass the ranges to reachable runtimes that do not have them; return True if none has failed."""
        async with self._passing:
            reachable = [handle for handle in self._registry.handles() if handle.state.reachable]
            self._applied = {handle.name: self._applied.get(handle.name, ()) for handle in reachable}
            due = [handle for handle in reachable if self._applied[handle.name] != self._cidrs]
            return all(await asyncio.gather(*(self._pass_to(handle, self._cidrs) for handle in due)))

    async def _pass_to(self, handle: RuntimeHandle, cidrs: tuple[str, ...]) -> bool:
        network = handle.capability(SupportsNetworkConfig)
        try:
            if network is not None:  # with the short deadline of a query: a caller waits for all runtimes
                await handle.ask("set_pod_cidrs", lambda: network.set_pod_cidrs(cidrs))
        except KubeletxError as error:
            if self._problems.get(handle.name) != str(error):
                log.warning(
                    "Failed to pass the pods' address ranges to a runtime",
                    runtime=handle.name,
                    err=str(error),
                )
            self._problems[handle.name] = str(error)
            return False
        self._problems.pop(handle.name, None)
        self._applied[handle.name] = cidrs
        return True
