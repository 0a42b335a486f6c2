"""Makes a self-signed serving certificate, used if the operator configured none and the cluster signs none.

Certificate and key are the files ``kubelet.crt`` and ``kubelet.key`` (0600) in the certificate directory. They are
valid for a year, and reused after a restart until 30 days before they expire. API servers without a kubelet CA accept
any certificate. Source: kubelet, cmd/kubelet/app/server.go, InitializeTLS.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kubeletx.api import InvalidConfig
from kubeletx.linux.files import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)


class Pair(NamedTuple):
    """Paths of a certificate and its private key."""

    certificate: Path
    key: Path


def ensure_pair(directory: Path, node_name: str, addresses: tuple[str, ...], now: datetime) -> Pair:
    """Return the certificate and key in `directory`; make new ones if they are missing or expire within 30 days.

    Raises InvalidConfig if the files cannot be written.
    """
    pair = Pair(directory / "kubelet.crt", directory / "kubelet.key")
    if _is_good(pair, now):
        return pair
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        certificate, key = make_pair(node_name, addresses, now)
        replace_file(pair.key, key, 0o600)
        replace_file(pair.certificate, certificate, 0o644)
    except OSError as error:
        raise InvalidConfig(
            field="--cert-dir",
            problem=f"cannot write a certificate below {directory}: {error.strerror or error}",
            fix="make the directory writable, or give --tls-cert-file and --tls-private-key-file",
        ) from error
    return pair


def make_pair(node_name: str, addresses: tuple[str, ...], now: datetime) -> tuple[bytes, bytes]:
    """Make a self-signed certificate for the node's name and addresses; returns certificate and key in PEM form."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(key, node_name, addresses, now)
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _sign(
    key: EllipticCurvePrivateKey, node_name: str, addresses: tuple[str, ...], now: datetime
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{node_name[:45]}@{int(now.timestamp())}")])
    names: list[x509.GeneralName] = [x509.DNSName(node_name)]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _is_good(pair: Pair, now: datetime) -> bool:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        return pair.key.stat().st_size > 0 and certificate.not_valid_after_utc - RENEW_BEFORE > now
    except (OSError, ValueError):  # missing or damaged: a new pair is made
        return False
