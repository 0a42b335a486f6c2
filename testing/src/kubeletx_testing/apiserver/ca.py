"""A certificate authority for the cluster of a test, with P-256 keys.

Certificates are valid for a day by default, starting an hour ago because clocks may differ. Identities are as
in a real cluster: CN is the user, each O a group. Source: apiserver, pkg/authentication/request/x509/x509.go
CommonNameUserConversion.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE: Final = timedelta(days=1)
_SKEW: Final = timedelta(hours=1)
_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH


class Pair(msgspec.Struct, frozen=True):
    """Paths of the PEM files of a certificate and its key."""

    cert_file: Path
    key_file: Path


def encrypt_key(key_file: Path) -> None:
    """Replace the PEM key in the file by the same key encrypted with a passphrase."""
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"s3cret")
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )


class CertificateAuthority:
    """A CA for one cluster.

    It writes the certificates that it makes, and its own as ``ca.crt``, into `directory`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / "ca.crt"
        self.key_file = directory / "ca.key"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kubernetes", ())
        self._certificate = self._make()
        self.ca_file.write_bytes(self.pem)
        _write_key(self.key_file, self._key)

    @property
    def pem(self) -> bytes:
        """The CA's own certificate in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def client(
        self,
        user: str,
        groups: Sequence[str] = (),
        life: timedelta = LIFE,
        file_name: str = "",
        since: timedelta = _SKEW,
    ) -> Pair:
        """Make a client certificate for this user.

        `groups`: the user's groups. `life`: how long the certificate is valid from now; if negative, it has
        expired. `file_name`: name of the files without suffix; empty: the user's name. `since`: how long ago
        its validity began.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self.sign(_name(user, groups), key.public_key(), (_CLIENT,), (), life, since)
        return self._write(file_name or user.replace(":", "-"), signed, key)

    def server(self, file_name: str, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> Pair:
        """Make a server certificate for these host names and addresses.

        `file_name`: name of the files without suffix.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self.sign(_name(file_name, ()), key.public_key(), (_SERVER,), hosts, LIFE)
        return self._write(file_name, signed, key)

    def sign(
        self,
        subject: x509.Name,
        public_key: CertificatePublicKeyTypes,
        usages: Sequence[x509.ObjectIdentifier],
        hosts: Sequence[str],
        life: timedelta,
        since: timedelta = _SKEW,
        now: datetime | None = None,
    ) -> bytes:
        """Return a certificate in PEM, valid from `now - since` until `now + life`, and for at least an hour.

        `usages`: extended key usages. `hosts`: DNS names and IP addresses for the subject alternative name.
        `now`: None means the time of this machine.
        """
        now = now or datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now - since, now + life - timedelta(hours=1)))
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def _write(self, file_name: str, pem: bytes, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self.directory / f"{file_name}.crt", self.directory / f"{file_name}.key")
        pair.cert_file.write_bytes(pem)
        _write_key(pair.key_file, key)
        return pair

    def _make(self) -> x509.Certificate:
        now = datetime.now(UTC)
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        usage = x509.KeyUsage(True, False, True, False, False, True, True, False, False)
        return (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * LIFE)
            .not_valid_after(now + 2 * LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(key_id, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
