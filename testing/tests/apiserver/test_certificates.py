"""Certificate requests of nodes: approval, signing, what the signers refuse."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeletx_testing.apiserver import ApiClient, ApiServerDouble, Pair, Settings, StatusError

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"


def request(
    key: ec.EllipticCurvePrivateKey,
    user: str = "system:node:n1",
    group: str = "system:nodes",
    hosts: Sequence[str] = (),
) -> bytes:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def ask(client: ApiClient, pem: bytes, signer: str = CLIENT, **spec: Any) -> dict[str, Any]:
    usage = "client auth" if signer == CLIENT else "server auth"
    wanted = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": ["digital signature", usage],
        **spec,
    }
    return client.create("certificatesigningrequests", {"metadata": {"name": "one"}, "spec": wanted})


def certificate(value: dict[str, Any]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(value["status"]["certificate"]))


def conditions(value: dict[str, Any]) -> list[str]:
    return [condition["type"] for condition in value["status"]["conditions"]]


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def test_a_bootstrap_token_leads_to_a_node(
    api: ApiServerDouble, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    newcomer = api.client(api.add_user("system:bootstrap:abcdef", ["system:bootstrappers"]))
    with pytest.raises(StatusError):
        newcomer.create("nodes", {"metadata": {"name": "n1"}})
    made = ask(newcomer, request(key))
    assert made["spec"]["username"] == "system:bootstrap:abcdef"
    assert conditions(made) == ["Approved"]
    pair = Pair(tmp_path / "node.crt", tmp_path / "node.key")
    pair.cert_file.write_bytes(base64.b64decode(made["status"]["certificate"]))
    pair.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    assert api.client(pair).create("nodes", {"metadata": {"name": "n1"}})["metadata"]["name"] == "n1"


def test_a_serving_certificate_has_the_names_asked_for(
    api: ApiServerDouble, key: ec.EllipticCurvePrivateKey
) -> None:
    made = ask(api.node_client("n1"), request(key, hosts=["n1.example"]), SERVING)
    names = certificate(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1.example"]


def test_an_approver_decides_when_nothing_is_automatic(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    with ApiServerDouble(tmp_path / "api", Settings(auto_approve=False)) as api:
        made = ask(api.admin, request(key))
        assert made["status"] == {}
        made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "me"}]}
        approved = api.admin.replace("certificatesigningrequests", made, "approval")
        assert certificate(approved).subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"


def test_certificates_live_as_long_as_the_cluster_says(
    api: ApiServerDouble, key: ec.EllipticCurvePrivateKey
) -> None:
    api.settings.certificate_seconds = 600
    signed = certificate(ask(api.admin, request(key), expirationSeconds=86400))
    life = signed.not_valid_after_utc - api.settings.now()
    assert 500 < life.total_seconds() <= 600


@pytest.mark.parametrize(
    ("subject", "signer", "problem"),
    [
        ({"group": "system:masters"}, CLIENT, "subject organization is not system:nodes"),
        ({"user": "bob"}, CLIENT, "subject common name does not begin with system:node:"),
        ({"hosts": ["n1"]}, CLIENT, "DNS and IP subjectAltNames are not allowed"),
        ({}, SERVING, "DNS or IP subjectAltName is required"),
        ({"hosts": ["n1"], "user": "system:node:n2"}, SERVING, "is not the requesting user"),
    ],
)
def test_what_the_signers_refuse_has_failed(
    api: ApiServerDouble, key: ec.EllipticCurvePrivateKey, subject: dict[str, Any], signer: str, problem: str
) -> None:
    made = ask(api.node_client("n1"), request(key, **subject), signer)
    assert conditions(made) == ["Approved", "Failed"]
    assert problem in made["status"]["conditions"][1]["message"]
    assert "certificate" not in made["status"]
