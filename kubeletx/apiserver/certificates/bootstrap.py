"""`Bootstrap`: requests the node's first certificate with a bootstrap kubeconfig.

    bootstrap token ─► request for system:node:NAME ─► <cert-dir>/kubelet-client-current.pem ─► kubeconfig that names it

It retries until it succeeds: static pods run meanwhile, and an operator may have to approve the request. If a stored
certificate seemed expired only because this machine's clock was wrong, it is used once the clock is right. The key of
an unanswered request is kept in a file, so that a restarted agent continues with the same request.

Source: kubelet, pkg/kubelet/certificate/bootstrap/bootstrap.go (LoadClientCert, writeKubeconfigFromBootstrapping).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, InvalidConfig, KubeletxError, PermissionDenied
from kubeletx.kube.client import ClusterAccess, KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.types.certificates import CLIENT_SIGNER
from kubeletx.linux.files import remove_file, replace_file

from .files import CertificateFiles
from .key_pairs import Subject, new_key, public_part
from .request import obtain

log = structlog.get_logger(__name__)

USAGE = "client auth"
KEY_FILE = "kubelet-client.key.tmp"


class Bootstrap:
    """Obtains the node's first client certificate with a bootstrap kubeconfig.

    `run` returns once the node has a valid certificate.
    """

    def __init__(
        self,
        load_access: Callable[[], ClusterAccess],
        subject: Subject,
        *,
        files: CertificateFiles,
        kubeconfig: Path,
        clock: Clock,
    ) -> None:
        """`load_access`: reads the bootstrap kubeconfig. `subject`: subject of the requested certificate.

        `kubeconfig`: path of the kubeconfig that is written once the certificate is issued, and that refers to it.
        """
        self._load_access = load_access
        self._subject = subject
        self._files = files
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._key_file = files.current.with_name(KEY_FILE)

    async def run(self) -> None:
        """Request a certificate until one is issued; retry with back-off after each failure.

        After a failure it also returns if the stored certificate is valid for `subject` and the kubeconfig exists.
        """
        backoff, problem = server_backoff(first=1.0), ""
        while True:
            try:
                await self._try()
            except (KubeletxError, OSError) as error:
                if str(error) != problem:
                    log.warning("Failed to get the node's first certificate", err=str(error))
                problem = str(error)
                if self._is_joined():
                    return
                if isinstance(error, PermissionDenied) and "certificate request" in problem:
                    remove_file(self._key_file)  # the request was denied: a new key makes a new request
                least = least_seconds(error)
                await self._clock.sleep(backoff.next(self._clock.monotonic(), at_least=least))
            else:
                return

    async def _try(self) -> None:
        access, key = self._load_access(), self._key()
        client = KubeClient(access, clock=self._clock)
        try:
            pair = await obtain(
                client, key, self._subject, signer=CLIENT_SIGNER, usage=USAGE, clock=self._clock
            )
        finally:
            await client.close()
        self._files.store(pair, self._clock.now())
        replace_file(self._kubeconfig, kubeconfig_text(joined(access, self._files.current)).encode(), 0o600)
        remove_file(self._key_file)
        log.info("Got the node's first certificate", file=str(self._files.current))

    def _is_joined(self) -> bool:
        pair = self._files.load()
        now = self._clock.now()
        return (
            pair is not None
            and pair.is_for(self._subject)
            and pair.is_valid_at(now)
            and self._kubeconfig.exists()
        )

    def _key(self) -> bytes:
        try:
            key = self._key_file.read_bytes()
            public_part(key)
        except (OSError, InvalidConfig):
            key = new_key()
            replace_file(self._key_file, key, 0o600)
        return key


def joined(access: ClusterAccess, certificate: Path) -> ClusterAccess:
    """Return `access` with the node's certificate instead of the bootstrap credentials.

    `certificate`: PEM file that holds the certificate and its key.
    """
    return replace(
        access,
        certificate=certificate,
        key=certificate,
        token="",
        token_file=None,
        exec=None,
        namespace="default",
    )


def kubeconfig_text(access: ClusterAccess) -> str:
    """Return a kubeconfig for `access` as YAML text, in the form that the kubelet writes.

    It has one cluster, with an absolute path of the CA file, and one user with the paths of certificate and key.
    """
    import yaml  # imported here, since it is needed only once in a node's life

    cluster: dict[str, Any] = {"server": access.server}
    if isinstance(access.ca, Path):
        cluster["certificate-authority"] = str(access.ca.absolute())
    elif access.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca).decode()
    if access.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if access.tls_server_name:
        cluster["tls-server-name"] = access.tls_server_name
    if access.proxy_url:
        cluster["proxy-url"] = access.proxy_url
    user = {"client-certificate": str(access.certificate), "client-key": str(access.key)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "default-cluster", "cluster": cluster}],
            "users": [{"name": "default-auth", "user": user}],
            "contexts": [
                {
                    "name": "default-context",
                    "context": {"cluster": "default-cluster", "user": "default-auth", "namespace": "default"},
                }
            ],
            "current-context": "default-context",
        },
        sort_keys=False,
    )
