"""`ApiServerDouble`: a small API server in a thread of the test's process.

It serves real HTTPS on 127.0.0.1, with real lists and watches, and keeps objects in memory. The server has
its own thread and event loop. So synchronous tests, asynchronous tests and tests that run the agent in
another process can use it. All methods may be called from any thread. They block for milliseconds only, so an
asynchronous test may call them directly. The exception is a request that the server can answer only with the
help of the test's own event loop, such as the log of a pod whose node runs in that loop: make this request
with `asyncio.to_thread`.

Objects survive `stop` and `start`, as those of a real server do in etcd; the port is the same.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aiohttp import web

from .authorization import Authorizer, Grant
from .ca import CertificateAuthority, Pair
from .client import ApiClient
from .csr import signer
from .faults import Faults
from .handler import Handler
from .kubeconfig import write_kubeconfig
from .node_proxy import NodeProxy
from .registry import Registry, Target
from .request_log import RequestLog
from .resources import resource
from .reviews import Tokens
from .settings import Settings
from .store import Backup, Store
from .users import AUTHENTICATED, MASTERS, User
from .watching import Cut, End

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_NO_TIME_CHECK: Final = (
    0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME: expired certificates get 401, as upstream
)
_DEADLINE_SECONDS: Final = 60.0
_SHUTDOWN_GRACE_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 0.002
_STOP_SECONDS: Final = 0.05  # then running requests are cancelled; 0 would wait for them for ever
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024

T = TypeVar("T")


class ApiServerDouble:
    """An API server for tests. Use it as a context manager, or call `start` and `close`.

    `admin`: client of a user who may do everything. `settings`, `faults` (injected failures) and `requests`
    (log of requests) may be used at any time.
    """

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.settings = settings or Settings()
        self.authority = CertificateAuthority(directory / "pki")
        self.ca_file = self.authority.ca_file
        self.requests = RequestLog()
        self._sockets = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._sockets)
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-server", daemon=True)
        self._thread.start()
        self.faults = Faults(self._soon)
        self._store = Store()
        self._registry = Registry(self._store, self.settings, signer(self.authority, self.settings))
        self._tokens = Tokens(self._store, self.settings)
        self._authorizer = Authorizer(self._store)
        kubelet_client = self.authority.client("kube-apiserver-kubelet-client", ["system:masters"])
        self._handler = Handler(
            store=self._store,
            registry=self._registry,
            settings=self.settings,
            tokens=self._tokens,
            authorizer=self._authorizer,
            proxy=NodeProxy(self._store, kubelet_client),
            faults=self.faults,
            log=self.requests,
        )
        self._serving = self.authority.server("apiserver")
        self._runner: web.AppRunner | None = None
        self._port = _free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.admin_token = self.add_user("admin", [MASTERS])
        self.admin = self.client(self.admin_token)
        for name in NAMESPACES:
            self._registry.create(Target(resource=resource("namespaces")), {"metadata": {"name": name}})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- running ---

    def start(self) -> None:
        """Listen for connections, always on the same port; does nothing if the server is listening already."""
        self._run(self._start())

    def stop(self) -> None:
        """Close the port and all connections, including watches; objects are kept for the next `start`."""
        self._run(self._stop())

    def close(self) -> None:
        """Stop the server and end its thread; it cannot be started again."""
        self.faults.clear()
        self.stop()
        self._run(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_SECONDS)
        self._loop.close()

    # --- identities ---

    def add_user(self, name: str, groups: Sequence[str] = ()) -> str:
        """Add a user and return a bearer token for the user.

        The user is in these groups and in the group system:authenticated.
        """
        return self._tokens.add(User(name=name, groups=(*groups, AUTHENTICATED)))

    def grant(self, grant: Grant) -> None:
        """Give a user or group a right, for the lifetime of this server."""
        self._authorizer.grants.append(grant)

    def node_pair(self, name: str) -> Pair:
        """Make a client certificate that a node's agent can use."""
        return self.authority.client(f"system:node:{name}", ["system:nodes"])

    def client(self, credentials: Pair | str | None) -> ApiClient:
        """Return a client with these credentials.

        `credentials`: the files of a client certificate, a bearer token, or None for an anonymous user.
        """
        return ApiClient(self.url, self.ca_file, credentials)

    def node_client(self, name: str) -> ApiClient:
        """Return a client with the identity of this node, as the node's agent has it."""
        return self.client(self.node_pair(name))

    def admin_kubeconfig(self) -> Path:
        """Write a kubeconfig file of a user who may do everything; returns its path."""
        return self.kubeconfig("admin", self.admin_token)

    def node_kubeconfig(self, name: str) -> Path:
        """Write a kubeconfig file for the agent of a node; returns its path."""
        return self.kubeconfig(name, self.node_pair(name))

    def bootstrap_kubeconfig(self) -> Path:
        """Write a kubeconfig file with a bootstrap token and return its path.

        The token's user may only request certificates.
        """
        token = self.add_user("system:bootstrap:abcdef", ["system:bootstrappers"])
        return self.kubeconfig("bootstrap", token)

    def kubeconfig(self, name: str, credentials: Pair | str, embed: bool = False) -> Path:
        """Write the kubeconfig file ``NAME.kubeconfig`` with these credentials; returns its path.

        `embed`: True writes the certificates into the file as data; False writes their paths.
        """
        path = self.directory / f"{name}.kubeconfig"
        return write_kubeconfig(path, self.url, self.ca_file, credentials, embed)

    # --- the state as a whole ---

    @property
    def revision(self) -> int:
        """Number of the last change. It is the resourceVersion of the object that was changed."""
        return self._store.revision

    def backup(self) -> Backup:
        """Return a copy of all current objects, for `restore`."""
        return self._call(self._store.backup)

    def restore(self, backup: Backup) -> None:
        """Replace all objects by those of a backup, like restoring an etcd snapshot.

        The counter of resource versions returns to its old value too, and all watch connections are closed.
        """

        def go_back() -> None:
            self._store.restore(backup)
            self._order(Cut())

        self._call(go_back)

    def forget_history(self) -> None:
        """Forget all earlier versions of objects, like a compaction of etcd.

        New watches and continued lists that start at an earlier version get 410. Open watches continue.
        """
        self._call(self._store.forget_history)

    # --- watches ---

    def watch_count(self, plural: str = "") -> int:
        """Return the number of open watches.

        `plural`: count only watches of this resource; empty: of all resources.
        """
        return self._call(
            lambda: sum(
                not plural or watch.asked.resource.plural == plural for watch in self._handler.watches
            )
        )

    def cut_watches(self, plural: str = "", after_bytes: int | None = None) -> None:
        """Close the connections of watches abruptly.

        `plural`: only watches of this resource; empty: of all resources. `after_bytes`: None closes at once.
        A number closes after this many bytes of the next event's line: 0 before the line, a large number
        after the whole line.
        """
        self._call(lambda: self._order(Cut(after_bytes), plural))

    def end_watches(self, plural: str = "") -> None:
        """End watches properly, as a server does at their timeout.

        `plural`: only watches of this resource; empty: of all resources.
        """
        self._call(lambda: self._order(End(), plural))

    # --- inside ---

    def _order(self, order: Cut | End, plural: str = "") -> None:
        for watch in self._handler.watches:
            if not plural or watch.asked.resource.plural == plural:
                watch.overrides.put_nowait(order)

    async def _start(self) -> None:
        if self._runner is not None:
            return
        self._handler.is_open = True
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handler.handle)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls(), reuse_address=True)
        await site.start()

    async def _stop(self) -> None:
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        self._handler.is_open = False
        self._order(Cut())
        await runner.cleanup()
        await self._handler.abort_connections()

    async def _settle(self) -> None:
        """Wait until all connections are closed and all requests in progress are cancelled."""
        deadline = self._loop.time() + _SHUTDOWN_GRACE_SECONDS
        while len(self._sockets.get_map()) > 1 and self._loop.time() < deadline:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_TURN_SECONDS)
        # aiohttp does not wait for requests that it cancels at a shutdown, such as delayed ones.
        left = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_SHUTDOWN_GRACE_SECONDS)
        await asyncio.sleep(_TURN_SECONDS)

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._serving.cert_file, self._serving.key_file)
        context.load_verify_locations(cafile=self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VerifyFlags(_NO_TIME_CHECK)
        return context

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._run(call())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_DEADLINE_SECONDS)

    def _soon(self, function: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(function)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
