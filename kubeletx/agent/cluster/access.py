"""The node's identity in its cluster.

It comes from a kubeconfig or from rotated certificates, or is requested with a bootstrap kubeconfig.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, InvalidConfig
from kubeletx.apiserver.certificates.bootstrap import Bootstrap, joined
from kubeletx.apiserver.certificates.files import CLIENT, SERVER, CertificateFiles
from kubeletx.apiserver.certificates.key_pairs import KeyPair, Subject, parse_pair
from kubeletx.apiserver.certificates.rotation import CertificateRotation, Purpose
from kubeletx.kube.client import ClusterAccess, KubeClient, load_kubeconfig
from kubeletx.kube.types.certificates import CLIENT_SIGNER, SERVING_SIGNER

from ..config.tree import AgentConfig

log = structlog.get_logger(__name__)

CLIENT_PURPOSE = Purpose(name="client", signer=CLIENT_SIGNER, usage="client auth")
SERVER_PURPOSE = Purpose(name="server", signer=SERVING_SIGNER, usage="server auth")


class NodeAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The node's access to its cluster, and the bootstraps that request the node's certificate.

    `access`: server and credentials; if `bootstrap` is set, they are usable only after it has run. `bootstrap`:
    requests the first certificate; None if the node has a usable kubeconfig. `rebootstrap`: requests a new certificate
    after the present one has expired; None without a bootstrap kubeconfig.
    """

    access: ClusterAccess
    bootstrap: Bootstrap | None = None
    rebootstrap: Bootstrap | None = None


def cert_directory(config: AgentConfig) -> Path:
    """Return the directory in which certificates are created and renewed."""
    return config.server.cert_dir or config.root_dir / "pki"


def node_access(config: AgentConfig, kubeconfig: Path, node_name: str, clock: Clock) -> NodeAccess:
    """Read the node's access from its kubeconfig.

    If the kubeconfig is missing or unusable and a bootstrap kubeconfig is configured, prepare a bootstrap that writes
    it. Raises InvalidConfig for unusable files.
    """
    settings = config.cluster
    files = CertificateFiles(cert_directory(config), CLIENT)
    again = None
    if settings.bootstrap_kubeconfig is not None:
        read = partial(load_kubeconfig, settings.bootstrap_kubeconfig)
        again = Bootstrap(read, Subject(node_name=node_name), files=files, kubeconfig=kubeconfig, clock=clock)
        if not is_usable(kubeconfig, clock):
            return NodeAccess(access=joined(read(), files.current), bootstrap=again, rebootstrap=again)
    access = load_kubeconfig(kubeconfig)
    if settings.rotate_certificates and access.certificate is not None:
        access = _rotated(access, files, Subject(node_name=node_name), clock)
    return NodeAccess(access=access, rebootstrap=again)


def is_usable(kubeconfig: Path, clock: Clock) -> bool:
    """Return True if the kubeconfig exists and is valid, and its client certificate, if it has one, has not expired."""
    if not kubeconfig.exists():
        return False
    try:
        access = load_kubeconfig(kubeconfig)
        pair = _pair_of(access)
    except InvalidConfig as error:
        log.warning("Cannot use the kubeconfig; requesting another", err=str(error))
        return False
    return pair is None or pair.not_after > clock.now()


def client_rotation(
    config: AgentConfig, node: NodeAccess, client: KubeClient, node_name: str, clock: Clock
) -> CertificateRotation | None:
    """Make the object that renews the client certificate; None if rotation is off or the node has no certificate."""
    if not config.cluster.rotate_certificates or node.access.certificate is None:
        return None
    return CertificateRotation(
        client,
        CertificateFiles(cert_directory(config), CLIENT),
        lambda: Subject(node_name=node_name),
        purpose=CLIENT_PURPOSE,
        clock=clock,
        when_expired=node.rebootstrap.run if node.rebootstrap is not None else None,
    )


def server_rotation(
    config: AgentConfig, client: KubeClient, subject: Subject, clock: Clock
) -> CertificateRotation | None:
    """Make the object that renews the serving certificate of the kubelet's API.

    Returns None if a certificate file is configured, or if the configuration does not request the certificate from the
    cluster. `subject`: the names and addresses of the certificate.
    """
    if not config.cluster.server_tls_bootstrap or config.server.tls_cert_file is not None:
        return None
    return CertificateRotation(
        client,
        CertificateFiles(cert_directory(config), SERVER),
        lambda: subject,
        purpose=SERVER_PURPOSE,
        clock=clock,
    )


def _rotated(access: ClusterAccess, files: CertificateFiles, subject: Subject, clock: Clock) -> ClusterAccess:
    """Return `access` with the client certificate that rotation stores in `files`, instead of the kubeconfig's own.

    If no good certificate is stored, the kubeconfig's own is stored first. A stored certificate that is not valid yet
    counts as good, since the clock of a machine that just started may be behind.
    """
    held, pair = files.load(), _pair_of(access)
    if pair is not None and pair != held and (held is None or not _is_good(held, subject, pair, clock)):
        files.store(pair, clock.now())
    return replace(access, certificate=files.current, key=files.current)


def _is_good(held: KeyPair, subject: Subject, other: KeyPair, clock: Clock) -> bool:
    if not held.is_for(subject):
        return False
    now = clock.now()
    if other.is_for(subject) and other.not_before > held.not_before and other.not_after > now:
        return False  # an operator replaced the kubeconfig's certificate, perhaps with one of another cluster
    return held.not_after > now or held.not_after >= other.not_after


def _pair_of(access: ClusterAccess) -> KeyPair | None:
    if access.certificate is None or access.key is None:
        return None
    parts = [_bytes(file) for file in dict.fromkeys((access.certificate, access.key))]
    return parse_pair(
        b"\n".join(parts), str(access.certificate) if isinstance(access.certificate, Path) else "kubeconfig"
    )


def _bytes(material: Path | bytes) -> bytes:
    if isinstance(material, bytes):
        return material
    try:
        return material.read_bytes()
    except OSError as error:
        raise InvalidConfig(
            obj=str(material),
            field="",
            problem=f"cannot be read: {error.strerror}",
            fix="correct the kubeconfig",
        ) from error
