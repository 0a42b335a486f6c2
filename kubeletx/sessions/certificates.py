"""Certificates of the session service: the node's CA, the server's certificate, and one certificate for each instance.

    <root>/sessions/ca.crt, ca.key (0600)     the CA, kept over restarts, made again if it is damaged or not valid now
    CA ─► server       name session.kubeletx.io, made at each start, kept in memory
    CA ─► instance     CN: UID of the pod; SAN: kubeletx://pod/<namespace>/<name>

All keys are ECDSA P-256. Certificates have no end date (RFC 5280, 4.1.2.5): an instance may live for years, and the
server refuses the certificate of a pod that is gone. They begin an hour before they are made, so that a clock that is
set back a little does not invalidate them.

The functions block and belong on a thread. The package `cryptography` is imported when the first certificate is made.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeletx.api import PodUid
from kubeletx.linux.files import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName
    from cryptography.x509.oid import ObjectIdentifier

SERVER_NAME: Final = "session.kubeletx.io"
"""Name in the server's certificate. Clients expect it on the Unix socket and on a TCP address alike."""
CA_NAME: Final = "kubeletx session service"
MARGIN: Final = timedelta(hours=1)
NO_END: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class SignedPair(NamedTuple):
    """A certificate and its private key, in PEM form."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "SignedPair()"


class NodeCA:
    """The CA of one node, which signs the certificates of the session service and of the instances."""

    def __init__(self, certificate: Certificate, key: EllipticCurvePrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding

        self._certificate = certificate
        self._key = key
        self.pem = certificate.public_bytes(Encoding.PEM)

    def server_pair(self, now: datetime) -> SignedPair:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self._issue(SERVER_NAME, x509.DNSName(SERVER_NAME), usage, now)

    def instance_pair(self, uid: PodUid, pod_id: str, now: datetime) -> SignedPair:
        """Make the certificate of an instance. `pod_id`: ``namespace/name``."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        name = x509.UniformResourceIdentifier(f"kubeletx://pod/{pod_id}")
        return self._issue(str(uid), name, ExtendedKeyUsageOID.CLIENT_AUTH, now)

    def is_good(self, certificate: bytes, key: bytes, uid: PodUid, now: datetime) -> bool:
        """Return True if this CA signed the certificate for this pod, it is valid now, and the key belongs to it."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.x509.oid import NameOID

        try:
            found = x509.load_pem_x509_certificate(certificate)
            found.verify_directly_issued_by(self._certificate)
            owner = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
            return owner == uid and _is_pair(found, _load_key(key)) and _is_valid(found, now)
        except (ValueError, TypeError, IndexError, InvalidSignature):
            return False

    def _issue(self, name: str, other: GeneralName, usage: ObjectIdentifier, now: datetime) -> SignedPair:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(
            name,
            CA_NAME,
            key,
            self._key,
            now,
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName([other]), False),
            (x509.ExtendedKeyUsage([usage]), False),
        )
        return SignedPair(certificate.public_bytes(Encoding.PEM), _dump_key(key))


def load_ca(directory: Path, now: datetime) -> NodeCA:
    """Return the CA in ``ca.crt`` and ``ca.key``; make a new one if it is missing, damaged or not valid now.

    Certificates of an earlier CA are then refused. Raises OSError if the files cannot be read or written.
    """
    certificate_path, key_path = directory / "ca.crt", directory / "ca.key"
    if (found := _read_ca(certificate_path, key_path, now)) is not None:
        return found
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = _sign(
        CA_NAME, CA_NAME, key, key, now, (x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)
    )
    made = NodeCA(certificate, key)
    replace_file(key_path, _dump_key(key), 0o600)
    replace_file(certificate_path, made.pem, 0o644)
    return made


def _read_ca(certificate_path: Path, key_path: Path, now: datetime) -> NodeCA | None:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = _load_key(key_path.read_bytes())
    except (FileNotFoundError, ValueError, TypeError):  # missing or damaged: a new one is made
        return None
    return NodeCA(certificate, key) if _is_pair(certificate, key) and _is_valid(certificate, now) else None


def _sign(
    subject: str,
    issuer: str,
    key: EllipticCurvePrivateKey,
    issuer_key: EllipticCurvePrivateKey,
    now: datetime,
    *extensions: tuple[object, bool],
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MARGIN)
        .not_valid_after(NO_END)
    )
    for extension, is_critical in extensions:
        assert isinstance(extension, x509.ExtensionType)
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _is_valid(certificate: Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _is_pair(certificate: Certificate, key: EllipticCurvePrivateKey) -> bool:
    return certificate.public_key() == key.public_key()


def _load_key(data: bytes) -> EllipticCurvePrivateKey:
    """Raises ValueError or TypeError if it is not a private key on an elliptic curve."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(data, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key on an elliptic curve")
    return key


def _dump_key(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
