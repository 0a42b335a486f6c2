"""Certificates of the kubelet's API: made, read again, refused."""

from __future__ import annotations

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from kubeletx.api import InvalidConfig
from kubeletx.server.access.ciphers import CIPHERS, openssl_ciphers
from kubeletx.server.access.self_signed import Pair, ensure_pair
from kubeletx.server.access.tls import ServerTls, TlsPlan, make_context
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.apiserver.ca import encrypt_key
from tests.unit.server.api_client import serving

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_pair_is_made_once_and_renewed_before_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    pair = ensure_pair(directory, "node-1", ("10.0.0.1", "fd00::1"), NOW)
    assert (pair.certificate.name, pair.key.name) == ("kubelet.crt", "kubelet.key")
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(pair.certificate.stat().st_mode) == 0o644
    made = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-1"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "fd00::1"]
    before = pair.certificate.read_bytes()
    assert ensure_pair(directory, "node-1", (), NOW + timedelta(days=334)).certificate.read_bytes() == before
    assert ensure_pair(directory, "node-1", (), NOW + timedelta(days=336)).certificate.read_bytes() != before
    pair.certificate.write_text("nonsense")
    ensure_pair(directory, "node-1", (), NOW)
    make_context(TlsPlan(), pair)


def test_a_directory_that_cannot_be_written_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match=r"--cert-dir: cannot write a certificate below"):
        ensure_pair(tmp_path / "file", "node-1", (), NOW)


def test_files_that_are_not_certificates_name_their_flags(tmp_path: Path) -> None:
    pair = ensure_pair(tmp_path, "node-1", (), NOW)
    with pytest.raises(InvalidConfig, match="--tls-cert-file"):
        make_context(TlsPlan(), Pair(tmp_path / "nothing", pair.key))
    with pytest.raises(InvalidConfig, match="--client-ca-file"):
        make_context(TlsPlan(client_ca=tmp_path / "nothing"), pair)


def test_a_key_with_a_passphrase_is_refused_and_no_one_is_asked(tmp_path: Path) -> None:
    pair = ensure_pair(tmp_path, "node-1", (), NOW)
    encrypt_key(pair.key)
    with pytest.raises(InvalidConfig, match=r"--tls-cert-file: .*the key is encrypted; give one without"):
        make_context(TlsPlan(), pair)


def test_versions_and_ciphers_are_as_configured(tmp_path: Path) -> None:
    pair = ensure_pair(tmp_path, "node-1", (), NOW)
    assert make_context(TlsPlan(), pair).minimum_version is ssl.TLSVersion.TLSv1_2
    assert make_context(TlsPlan(min_version="VersionTLS13"), pair).minimum_version is ssl.TLSVersion.TLSv1_3
    one = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = make_context(TlsPlan(ciphers=(one, "TLS_AES_128_GCM_SHA256")), pair)
    chosen = [c["name"] for c in context.get_ciphers() if not c["name"].startswith("TLS_")]
    assert chosen == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize("name", CIPHERS)
def test_every_cipher_is_known_to_openssl(name: str) -> None:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl_ciphers((name,)))


async def test_tls_before_1_2_is_not_spoken(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        old = api.tls(api.admin)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", api.server.port, ssl=old)


async def served(tls: ServerTls, client: ssl.SSLContext) -> bytes:
    """What a server with this context shows and answers; empty when it lets the client not in."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"served")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            got = await reader.read()
        except (ssl.SSLError, ConnectionError):
            return b""
        writer.close()
        return shown if got else b""


def client(pair: object = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.cert_file, pair.key_file)  # type: ignore[attr-defined]
    return context


async def test_new_files_count_for_new_connections_and_half_of_them_for_none(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = ensure_pair(tmp_path / "a", "a", (), NOW), ensure_pair(tmp_path / "b", "b", (), NOW)
    used = Pair(tmp_path / "tls.crt", tmp_path / "tls.key")
    used.certificate.write_bytes(first.certificate.read_bytes())
    used.key.write_bytes(first.key.read_bytes())
    tls = ServerTls(TlsPlan(), lambda: used, clock)
    old = await served(tls, client())
    used.certificate.write_bytes(second.certificate.read_bytes())
    assert await served(tls, client()) == old
    with capture_logs() as logs:
        for _ in range(2):
            clock.advance(11)
            assert await served(tls, client()) == old
    assert [one["event"] for one in logs] == ["Kept the server's certificates; the new ones cannot be used"]
    used.key.write_bytes(second.key.read_bytes())
    clock.advance(11)
    new = await served(tls, client())
    assert x509.load_der_x509_certificate(new) == x509.load_pem_x509_certificate(
        second.certificate.read_bytes()
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_authority_that_was_replaced_lets_no_one_in_any_more(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    clock = FakeClock()
    before, after = CertificateAuthority(tmp_path / "before"), CertificateAuthority(tmp_path / "after")
    pair = ensure_pair(tmp_path, "node-1", (), NOW)
    authority = tmp_path / "client-ca.crt"
    authority.write_bytes(before.pem)
    tls = ServerTls(TlsPlan(client_ca=authority), lambda: pair, clock)
    old, new = client(before.client("jane")), client(after.client("jane"))
    for one in (old, new):
        one.maximum_version = version
    assert await served(tls, old)
    assert not await served(tls, new)
    authority.write_bytes(after.pem)
    clock.advance(11)
    assert await served(tls, new)
    assert not await served(tls, old)
