"""Builds the server of the kubelet's API; imported only if the configuration enables it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import kubeletx
from kubeletx.api import Clock
from kubeletx.apiserver.certificates.files import SERVER, CertificateFiles
from kubeletx.kube.client import KubeClient
from kubeletx.server.access.authentication import Authenticator, TokenReviews
from kubeletx.server.access.authorization import AccessReviews, AlwaysAllow, Authorizer
from kubeletx.server.access.remote import KubeletAccess
from kubeletx.server.access.self_signed import Pair, ensure_pair
from kubeletx.server.access.tls import ServerTls, TlsPlan
from kubeletx.server.kubelet import logs as kubelet_logs
from kubeletx.server.kubelet import metrics as kubelet_metrics
from kubeletx.server.kubelet import node_logs as kubelet_node_logs
from kubeletx.server.kubelet import pods as kubelet_pods
from kubeletx.server.kubelet import streams as kubelet_streams
from kubeletx.server.kubelet import zpages as kubelet_zpages
from kubeletx.server.kubelet.api import KubeletServer, Listen
from kubeletx.server.kubelet.node_logs import NodeLogs
from kubeletx.server.views import PodTarget

from ..backend.pods import PodBackend
from ..cluster.access import cert_directory
from ..config.tree import AgentConfig
from ..host.logging import set_verbosity
from .admin import AdminAssembly
from .node import NodeAssembly
from .part import PartContext
from .pods import PodsAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

TIMEOUT_SECONDS = 120.0


def review_client(client: KubeClient, clock: Clock) -> KubeClient:
    """Make a second client for TokenReviews and SubjectAccessReviews, with the access of `client`.

    A client of their own keeps the reviews from delaying the node's requests.
    """
    return KubeClient(
        client.access,
        clock=clock,
        counts=client.counts,
        reach=client.reach,
        user_agent=f"kubeletx/{kubeletx.__version__} reviews",
    )


def kubelet_access(ctx: PartContext, reviews: KubeClient | None, node: NodeAssembly) -> KubeletAccess:
    """Return who has access to the kubelet's API. `reviews`: client for token and access reviews; None without a cluster."""
    config, clock, name = ctx.config, ctx.clock, node.reporter.name
    return KubeletAccess(
        plan=TlsPlan(
            min_version=config.server.tls_min_version,
            ciphers=config.server.tls_cipher_suites,
            client_ca=config.auth.client_ca_file,
        ),
        pair=partial(_pair, config, name, node.reporter.ips, clock),
        authenticator=_authenticator(config, reviews, clock),
        authorizer=_authorizer(config, reviews, name, clock),
    )


def kubelet_server(
    ctx: PartContext,
    port: int,
    access: KubeletAccess,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    admin: AdminAssembly,
) -> KubeletServer:
    """Build the server of the kubelet's API; it does not listen yet.

    Raises InvalidConfig for unusable certificates.
    """
    config, clock, backend = ctx.config, ctx.clock, admin.backend
    server = config.server
    checkpoints = CheckpointBackend(admin.pods, config.root_dir, clock)
    websockets = pods.services.counters.websocket_streams
    logs = NodeLogs(
        blocking=volumes.files, enabled=server.system_log_handler, queries=server.system_log_query
    )
    routes = (
        *kubelet_pods.routes(backend),
        *kubelet_metrics.routes(backend.about, views.figures),
        *kubelet_logs.routes(backend.pods),
        *kubelet_node_logs.routes(logs),
        *kubelet_zpages.verbosity_routes(set_verbosity, enabled=server.debug_flags_handler),
        *kubelet_pods.checkpoint_routes(backend.pods, checkpoints),
        *kubelet_streams.routes(backend.pods, idle_seconds=server.stream_idle_seconds, websockets=websockets),
    )
    return KubeletServer(
        Listen(address=server.address, port=port, debugging_handlers=server.debugging_handlers),
        tls=ServerTls(access.plan, access.pair, clock),
        authenticator=access.authenticator,
        authorizer=access.authorizer,
        routes=(*routes, *kubelet_zpages.routes(backend.about, routes, clock)),
        counts=admin.http,
    )


def _pair(config: AgentConfig, node_name: str, addresses: tuple[str, ...], clock: Clock) -> Pair:
    certificate, key = config.server.tls_cert_file, config.server.tls_key_file
    if certificate is not None and key is not None:
        return Pair(certificate, key)
    if config.cluster.server_tls_bootstrap:
        given = CertificateFiles(cert_directory(config), SERVER).current
        if given.exists():
            return Pair(given, given)
    return ensure_pair(cert_directory(config), node_name, addresses, clock.now())


def _authenticator(config: AgentConfig, reviews: KubeClient | None, clock: Clock) -> Authenticator:
    tokens = None
    if reviews is not None and config.auth.webhook:
        tokens = TokenReviews(reviews, clock=clock, keep_seconds=config.auth.webhook_cache_seconds)
    return Authenticator(tokens=tokens, anonymous=config.auth.anonymous)


def _authorizer(config: AgentConfig, reviews: KubeClient | None, node_name: str, clock: Clock) -> Authorizer:
    if config.auth.mode == "AlwaysAllow":
        return AlwaysAllow()
    assert reviews is not None  # `config.check` requires a kubeconfig for Webhook
    return AccessReviews(
        reviews,
        node_name=node_name,
        clock=clock,
        allow_seconds=config.auth.allow_cache_seconds,
        deny_seconds=config.auth.deny_cache_seconds,
    )


class CheckpointBackend:
    """Writes checkpoints of running containers to archives in ``<root-dir>/checkpoints``, which only root can read.

    Implements `CheckpointSource`. Source: kubelet, pkg/kubelet/kubelet.go CheckpointContainer.
    """

    def __init__(self, pods: PodBackend, root_dir: Path, clock: Clock) -> None:
        self._pods = pods
        self._directory = root_dir / "checkpoints"
        self._clock = clock

    async def checkpoint(self, target: PodTarget, container: str, timeout_seconds: float | None) -> str:
        moment = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"checkpoint-{target.name}_{target.namespace}-{container}-{moment}.tar"
        self._pods.find_container(
            target, container
        )  # raises if it is missing: only then its name is safe in a path
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._directory / name
        await self._pods.checkpoint(target, container, path, timeout_seconds or TIMEOUT_SECONDS)
        return str(path)
