"""`Surroundings`: reasons to doubt what the API server shows, and reboots that other actors have planned.

- No Lease of a well node is renewed: the API server takes no writes, so nodes look lost that are well.
- The storage cannot be reached from this host: volumes that fail then say nothing about a node.
- The lock of kured names the node that it reboots. Source: kubereboot/kured, pkg/daemonsetlock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, NotFound, PermissionDenied
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import LEASES, Resource
from kubeletx.kube.types.lease import LeaseList
from kubeletx.kube.types.meta import ApiStruct, ObjectMeta

from ..model import NodeView, RemedySettings

log = structlog.get_logger(__name__)

REFRESH_SECONDS: Final = 10.0
OLD_SECONDS: Final = 30.0
STALE_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 5.0
KURED_LOCK: Final = "weave.works/kured-node-lock"
_DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets")


class _Annotated(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class Surroundings:
    """Looked at while a node is sick. `planned`: reason by node for which another actor reboots it."""

    def __init__(self, client: KubeClient, clock: Clock, settings: Callable[[], RemedySettings]) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._at = float("-inf")
        self._doubts: tuple[str, ...] = ()
        self._renewals: dict[str, str | None] = {}
        self._renewed_at = float("-inf")
        self._refused: set[str] = set()
        self.planned: dict[str, str] = {}

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic() - self._at >= REFRESH_SECONDS

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons for which no step may begin on any node."""
        if self._clock.monotonic() - self._at > OLD_SECONDS:
            return ("Leases of nodes and the storage are being looked at",)
        return self._doubts

    async def refresh(self, well: AbstractSet[str], own: NodeView | None) -> None:
        """Look again. `well`: names of nodes that are well by their conditions. `own`: the node of this controller."""
        doubts = []
        for look in (self._stale(well), self._unreachable(own), self._kured()):
            try:
                doubts.append(await look)
            except KubeletxError as error:
                doubts.append(f"the surroundings cannot be looked at: {error}")
        self._doubts = tuple(filter(None, doubts))
        self._at = self._clock.monotonic()

    async def _stale(self, well: AbstractSet[str]) -> str:
        leases: dict[str, str | None] = {}
        with self._optional("Leases of nodes"):
            pages = list_pages(self._client, LEASES.path("kube-node-lease"), LeaseList)
            for page in [page async for page in pages]:
                leases |= {item.metadata.name: item.spec.renew_time for item in page.items}
        seen = {name: text for name, text in leases.items() if name in well and text}
        known, self._renewals = self._renewals, leases
        now = self._clock.monotonic()
        recent = self._clock.now() - timedelta(seconds=STALE_SECONDS)
        if any(
            known[name] != text if name in known else _is_after(text, recent) for name, text in seen.items()
        ):
            self._renewed_at = now
        if not seen or now - self._renewed_at <= STALE_SECONDS:
            return ""
        return f"no Lease of {len(seen)} well nodes is renewed: the API server's view may be outdated"

    async def _unreachable(self, own: NodeView | None) -> str:
        settings = self._settings()
        condition = own.condition(settings.storage_condition) if own is not None else None
        if condition is not None and condition.status == "True":
            return f"the controller's own node has condition {condition.type}: it cannot reach the storage"
        addresses = settings.storage_probe.replace(",", " ").split()
        if not addresses or any([await _answers(address) for address in addresses]):
            return ""
        return f"this host cannot reach the storage at {' '.join(addresses)}"

    async def _kured(self) -> str:
        namespace, _, name = self._settings().kured_daemonset.partition("/")
        text = ""
        if name:
            with self._optional("the DaemonSet of kured"):
                found = await self._client.get(_DAEMON_SETS.path(namespace, name), _Annotated)
                text = found.metadata.annotations.get(KURED_LOCK, "")
        self.planned = dict.fromkeys(_locked(text, self._clock.now()), "kured reboots the node")
        return ""

    @contextlib.contextmanager
    def _optional(self, what: str) -> Iterator[None]:
        """Go on without something that does not exist, or that the identity may not read, which is logged once."""
        try:
            yield
        except NotFound:
            pass
        except PermissionDenied as error:
            if what not in self._refused:
                log.warning("Cannot look at the surroundings", what=what, err=str(error))
            self._refused.add(what)


def _is_after(text: str, moment: datetime) -> bool:
    try:
        return datetime.fromisoformat(text) > moment
    except (ValueError, TypeError):
        return False


async def _answers(address: str) -> bool:
    """Return True if HOST:PORT accepts a connection."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True


def _locked(text: str, now: datetime) -> Iterator[str]:
    """Yield the nodes of kured's lock, of one owner or several. A lock that has outlived its TTL does not count."""
    try:
        lock: Any = msgspec.json.decode(text or "{}")
        for one in lock.get("locks") or [lock]:
            seconds = one.get("TTL", 0) / 1e9
            since = datetime.fromisoformat(one.get("created", "")) if seconds > 0 else now
            if one.get("nodeID") and (seconds <= 0 or (now - since).total_seconds() <= seconds):
                yield str(one["nodeID"])
    except (ValueError, TypeError, AttributeError):
        log.warning("Cannot read the lock of kured", text=text[:200])
