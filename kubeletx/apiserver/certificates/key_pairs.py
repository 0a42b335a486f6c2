"""Keys, certificate requests and certificates in PEM form.

Only this module uses the package `cryptography`, and it imports the package when a function needs it.

Source: kubelet, pkg/kubelet/certificate/kubelet.go (subjects, usages, ECDSA P-256 keys); client-go,
util/certificate/certificate_manager.go (70 to 90 % of the lifetime).
"""

from __future__ import annotations

import ipaddress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kubeletx.api import InvalidConfig

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

GROUP: Final = "system:nodes"
_EARLIEST, _LATEST = 0.7, 0.9


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Subject of a certificate: the node's name and, for a serving certificate, its DNS names and IP addresses."""

    node_name: str
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def common_name(self) -> str:
        """The node's user name: ``system:node:NAME``."""
        return f"system:node:{self.node_name}"


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its private key. The repr hides the key.

    `pem`: text that holds both. The other fields are values of the certificate.
    """

    pem: bytes
    common_name: str
    not_before: datetime
    not_after: datetime
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"KeyPair(common_name={self.common_name!r}, not_after={self.not_after.isoformat()!r})"

    def is_for(self, subject: Subject) -> bool:
        """Return True if the certificate has the subject's user name, DNS names and addresses."""
        return (
            self.common_name == subject.common_name
            and set(self.dns_names) == set(subject.dns_names)
            and set(self.addresses) == set(subject.addresses)
        )

    def is_valid_at(self, now: datetime) -> bool:
        """Return True if the certificate is valid at this time."""
        return self.not_before <= now < self.not_after

    def rotate_at(self, draw: float) -> datetime:
        """Return the time at which to renew the certificate: after 70 to 90 % of its lifetime.

        `draw`: a random number from 0 to 1 that picks the time, so that nodes do not all renew together.
        """
        life = self.not_after - self.not_before
        return self.not_before + life * (_EARLIEST + (_LATEST - _EARLIEST) * draw)


def new_key() -> bytes:
    """Make a private key (ECDSA P-256) in PEM form."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def make_request(key: bytes, subject: Subject) -> bytes:
    """Make a certificate request in PEM form, signed with the key. Raises InvalidConfig for an invalid key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, GROUP),
            x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    names: list[x509.GeneralName] = [x509.DNSName(dns_name) for dns_name in subject.dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in subject.addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(_private(key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def public_part(key: bytes) -> bytes:
    """Return the public key in DER form. Raises InvalidConfig for an invalid key."""
    from cryptography.hazmat.primitives import serialization

    return (
        _private(key)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def parse_pair(pem: bytes, origin: str) -> KeyPair:
    """Parse the first certificate and the private key in `pem`.

    `origin`: name of the file or request, for messages. Raises InvalidConfig if one of the two is missing or invalid,
    or if they do not match.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = serialization.load_pem_private_key(_key_of(pem), None)
    except (ValueError, TypeError) as error:
        raise _bad(origin, "does not hold a certificate and its key in PEM form") from error
    if key.public_key() != certificate.public_key():
        raise _bad(origin, "holds a certificate that belongs to another key")
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    dns, addresses = _names(certificate)
    return KeyPair(
        pem=pem,
        common_name=str(names[0].value) if names else "",
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        dns_names=dns,
        addresses=addresses,
    )


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        private = serialization.load_pem_private_key(key, None)
    except ValueError as error:
        raise InvalidConfig(
            field="key", problem="is not a private key in PEM form", fix="remove it"
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise InvalidConfig(field="key", problem="is not a key on an elliptic curve", fix="remove it")
    return private


def _key_of(pem: bytes) -> bytes:
    """Return the part of `pem` that starts with the private key; the certificate may come first."""
    begin = pem.find(b"-----BEGIN", 0)
    while begin >= 0:
        if b"PRIVATE KEY" in pem[begin : pem.find(b"\n", begin)]:
            return pem[begin:]
        begin = pem.find(b"-----BEGIN", begin + 1)
    raise ValueError("no private key")


def _names(certificate: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from cryptography import x509

    try:
        subject = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), ()
    dns = tuple(subject.get_values_for_type(x509.DNSName))
    return dns, tuple(str(address) for address in subject.get_values_for_type(x509.IPAddress))


def _bad(origin: str, problem: str) -> InvalidConfig:
    return InvalidConfig(
        obj=origin, field="", problem=problem, fix="remove it; the agent then requests a new one"
    )
