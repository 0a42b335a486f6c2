"""Mounts and variables of pods with sessions: certificate, metadata, and the socket of the session service.

    <root>/pods/<uid>/session/    tls.crt, tls.key, ca.crt, metadata.json    ─► /run/kubeletx/session
    <root>/sessions/socket/       session.sock                               ─► /run/kubeletx/session-service

Both are mounted read-only as directories, so that a replaced file is visible inside. The files of an instance are
readable for every user ID, since containers may run as any; only root enters the directories above. They are removed
with the pod's directory, also after a crash. A machine gets the first directory as a share: no Unix socket reaches
into a guest, so its metadata has the service's TCP address.

Pods without the annotation ``kubeletx.io/sessions: "true"`` stay as they are. The service starts for the first pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, InvalidPod, Mount, PodUid, Unavailable
from kubeletx.api.names import SESSION_INIT_CONTAINERS, SESSIONS
from kubeletx.kube.types.core import Pod, PodStatus, PodUnit, VirtualMachine
from kubeletx.linux.files import private_directory, replace_file
from kubeletx.pods import DesiredPod, PodFacts, UnitExtras, UnitRole

from .certificates import NodeCA, SignedPair, load_ca
from .metadata import RETRY_SECONDS, MetadataFiles
from .service import Sessions, has_sessions

if TYPE_CHECKING:
    from .server import SessionServer

log = structlog.get_logger(__name__)

DIRECTORY: Final = "/run/kubeletx/session"
SERVICE_DIRECTORY: Final = "/run/kubeletx/session-service"
SOCKET: Final = "session.sock"
IN_CONTAINERS: Final = f"unix://{SERVICE_DIRECTORY}/{SOCKET}"
LONG_RUNNING: Final = frozenset({UnitRole.REGULAR, UnitRole.SIDECAR})


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Paths and addresses of the session service. `root`: ``<root>/sessions``. `pod_directory`: of a pod's files on the node.

    `address`: ``HOST:PORT`` on which the service listens beside its Unix socket; None: only there. `reached_at`: the
    address by which machines reach it. `node`: name of the node.
    """

    root: Path
    pod_directory: Callable[[PodUid], Path]
    node: str
    address: str | None = None
    reached_at: str = ""


class SessionAccess:
    """Gives pods access to the session service: starts it, and provides certificates, metadata and mounts."""

    def __init__(
        self, settings: AccessSettings, *, sessions: Sessions, blocking: Blocking, clock: Clock
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._blocking = blocking
        self._clock = clock
        self._metadata = MetadataFiles(
            node=settings.node,
            directory=self._directory,
            sessions_of=sessions.of_pod,
            blocking=blocking,
            clock=clock,
        )
        self._opening = asyncio.Lock()
        self._ca: NodeCA | None = None
        self._server: SessionServer | None = None
        self._found: dict[PodUid, Pod] = {}
        """Pods that this process has not given a certificate."""
        self._news = asyncio.Event()
        sessions.subscribe(lambda session: self._metadata.changed(session.pod_uid))

    async def provide(self, pod: Pod, unit: PodUnit) -> UnitExtras:
        """Return the extras of one unit, see `ExtrasProvider`; make the pod's certificate and metadata before.

        Raises InvalidPod for a machine if the service has no TCP address, and Unavailable if it cannot listen.
        """
        if not has_sessions(pod):
            return UnitExtras()
        is_machine = isinstance(unit, VirtualMachine)
        service = self._service_for(is_machine)
        if not service:
            raise InvalidPod(
                field=f"metadata.annotations[{SESSIONS}]",
                problem="a machine cannot use the Unix socket of the session service",
                fix="start the agent with --session-service-address",
            )
        ca = await self._open()
        self._sessions.ensure_instance(pod)
        directory, now = self._directory(pod.uid), self._clock.now()
        await self._blocking(_make_files, directory, ca, pod.uid, pod.ref, now)
        self._found.pop(pod.uid, None)
        self._metadata.put(pod, service)
        await self._metadata.write(pod.uid)
        mounts = [Mount(source=str(directory), target=DIRECTORY, read_only=True)]
        if not is_machine:
            mounts.append(Mount(source=str(self._socket.parent), target=SERVICE_DIRECTORY, read_only=True))
        is_in_init = pod.metadata.annotations.get(SESSION_INIT_CONTAINERS) == "true"
        return UnitExtras(
            mounts=tuple(mounts),
            variables={
                "KUBELETX_SESSION_DIRECTORY": DIRECTORY,
                "KUBELETX_SESSION_SERVICE": service,
                "KUBELETX_POD_ID": pod.ref,
            },
            scope=LONG_RUNNING | {UnitRole.INIT} if is_in_init else LONG_RUNNING,
        )

    def pod_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        """Take a new status of a pod, see `StatusBoard`: its addresses, or that it is gone."""
        pod = desired.pod
        if not has_sessions(pod):
            return
        if status is None:
            self._metadata.forget(pod.uid)
            self._found.pop(pod.uid, None)
            if self._server is not None:
                self._server.forget(pod.uid)
            return
        if pod.uid not in self._metadata:
            self._found[pod.uid] = pod
            self._news.set()
        addresses = tuple(one.ip for one in status.pod_ips) or ((status.pod_ip,) if status.pod_ip else ())
        self._metadata.put(pod, self._service_for(facts.own.has_own_kernel), addresses)

    async def run(self) -> None:
        """Serve instances that an earlier agent process made, and keep metadata files up to date, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._metadata.run(), name="session metadata")
            if self._settings.address is not None:
                self._news.set()
            has_failed = False
            while True:
                await self._news.wait()
                self._news.clear()
                try:
                    ca = await self._open()
                    for pod in list(self._found.values()):
                        await self._look_after(pod, ca)
                        self._found.pop(pod.uid, None)
                    has_failed = False
                except Unavailable as error:
                    if not has_failed:
                        log.warning("Failed to serve instances; trying again", err=str(error))
                    has_failed = True
                    await self._clock.sleep(RETRY_SECONDS)
                    self._news.set()

    async def _look_after(self, pod: Pod, ca: NodeCA) -> None:
        """Go on with an instance of an earlier agent process; do nothing for a pod that has no certificate yet."""
        directory = self._directory(pod.uid)
        if await self._blocking(directory.is_dir) and pod.uid in self._found:
            await self._blocking(_make_files, directory, ca, pod.uid, pod.ref, self._clock.now())
            self._sessions.ensure_instance(pod)  # after a loss of the database it is not known

    async def close(self) -> None:
        """Stop the service; instances connect again to the next agent process."""
        if self._server is not None:
            await self._server.stop()

    @property
    def _socket(self) -> Path:
        return self._settings.root / "socket" / SOCKET

    def _directory(self, uid: PodUid) -> Path:
        return self._settings.pod_directory(uid) / "session"

    def _service_for(self, is_machine: bool) -> str:
        return self._settings.reached_at if is_machine else IN_CONTAINERS

    async def _open(self) -> NodeCA:
        """Start the service if it has not started, and return the CA."""
        async with self._opening:
            if self._ca is None:
                self._ca = await self._serve()
            return self._ca

    async def _serve(self) -> NodeCA:
        from .server import SessionServer

        ca, pair = await self._blocking(_prepare, self._settings.root, self._clock.now())
        server = SessionServer(find=self._sessions.instance, ca=ca.pem, pair=pair, clock=self._clock)
        await server.start(self._socket, self._settings.address)
        self._server = server
        log.info("Started the session service", socket=str(self._socket), address=self._settings.address)
        return ca


def _prepare(root: Path, now: datetime) -> tuple[NodeCA, SignedPair]:
    """Make the directories and the CA. Raises Unavailable if that fails."""
    try:
        private_directory(root)
        socket_directory = root / "socket"
        socket_directory.mkdir(exist_ok=True)
        socket_directory.chmod(0o755)
        ca = load_ca(root, now)
    except OSError as error:
        raise Unavailable(f"session service: cannot prepare {root}: {error.strerror or error}") from error
    return ca, ca.server_pair(now)


def _make_files(directory: Path, ca: NodeCA, uid: PodUid, pod_id: str, now: datetime) -> None:
    """Make an instance's directory and certificate; keep a certificate that is good. Raises Unavailable."""
    certificate, key = directory / "tls.crt", directory / "tls.key"
    try:
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        try:
            if ca.is_good(certificate.read_bytes(), key.read_bytes(), uid, now):
                return
        except FileNotFoundError:  # a new pod
            pass
        pair = ca.instance_pair(uid, pod_id, now)
        for path, data in ((directory / "ca.crt", ca.pem), (key, pair.key), (certificate, pair.certificate)):
            replace_file(path, data, 0o644)
    except OSError as error:
        raise Unavailable(
            f"pod {pod_id}: cannot write its certificate below {directory}: {error.strerror or error}"
        ) from error
