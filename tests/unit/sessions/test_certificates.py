"""The CA of the node, and what it accepts as an instance's certificate."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from kubeletx.api import PodUid
from kubeletx.sessions.certificates import MARGIN, SERVER_NAME, load_ca

NOW = datetime(2030, 1, 1, tzinfo=UTC)
UID = PodUid("uid-1")


def test_an_instance_certificate_names_its_pod_and_lasts_for_its_life(tmp_path: Path) -> None:
    ca = load_ca(tmp_path, NOW)
    pair = ca.instance_pair(UID, "games/chess", NOW)
    found = x509.load_pem_x509_certificate(pair.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key = found.public_key()
    assert found.subject.rfc4514_string() == "CN=uid-1"
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["kubeletx://pod/games/chess"]
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert ca.is_good(*pair, UID, NOW + timedelta(days=36_500))
    assert pair.key.decode() not in repr(pair)


@pytest.mark.parametrize(
    ("uid", "now"), [(PodUid("uid-2"), NOW), (UID, NOW - MARGIN - timedelta(seconds=1))], ids=["pod", "early"]
)
def test_a_certificate_of_another_pod_or_of_the_future_is_not_good(
    tmp_path: Path, uid: PodUid, now: datetime
) -> None:
    ca = load_ca(tmp_path, NOW)
    pair = ca.instance_pair(UID, "games/chess", NOW)
    assert ca.is_good(*pair, UID, NOW - MARGIN)
    assert not ca.is_good(*pair, uid, now)


def test_certificates_of_another_ca_keys_of_others_and_damage_are_not_good(tmp_path: Path) -> None:
    ca, other = load_ca(tmp_path / "a", NOW), load_ca(tmp_path / "b", NOW)
    pair, second = ca.instance_pair(UID, "a/b", NOW), ca.instance_pair(UID, "a/b", NOW)
    assert not ca.is_good(*other.instance_pair(UID, "a/b", NOW), UID, NOW)
    assert not ca.is_good(pair.certificate, second.key, UID, NOW)
    assert not ca.is_good(pair.certificate[:-200], pair.key, UID, NOW)
    assert not ca.is_good(pair.certificate, b"", UID, NOW)


def test_the_ca_is_kept_with_a_private_key_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = load_ca(tmp_path / "sessions", NOW)
    finally:
        os.umask(before)
    assert load_ca(tmp_path / "sessions", NOW + timedelta(days=1)).pem == made.pem
    assert (tmp_path / "sessions" / "ca.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_a_damaged_ca_is_made_again(tmp_path: Path, name: str) -> None:
    made = load_ca(tmp_path, NOW)
    pair = made.instance_pair(UID, "a/b", NOW)
    (tmp_path / name).write_text("damaged")
    again = load_ca(tmp_path, NOW)
    assert again.pem != made.pem
    assert not again.is_good(*pair, UID, NOW)


def test_a_ca_from_the_future_is_made_again(tmp_path: Path) -> None:
    future = load_ca(tmp_path, NOW + timedelta(days=2))
    assert load_ca(tmp_path, NOW).pem != future.pem


def test_the_server_has_one_name_and_cannot_pose_as_an_instance(tmp_path: Path) -> None:
    found = x509.load_pem_x509_certificate(load_ca(tmp_path, NOW).server_pair(NOW).certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
