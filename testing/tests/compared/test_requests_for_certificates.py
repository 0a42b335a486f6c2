"""Certificate requests, as far as the API server itself deals with them: no controller approves or signs here."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import NodeUnderTest

PLURAL = "certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


def spec_for(user: str) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return {
        "request": base64.b64encode(pem).decode(),
        "signerName": CLIENT,
        "usages": ["digital signature", "client auth"],
    }


@pytest.fixture
def asked(node: NodeUnderTest) -> dict[str, Any]:
    """A request of the node's agent."""
    return ask(node)


def ask(node: NodeUnderTest, **spec: Any) -> dict[str, Any]:
    body = {"metadata": {"generateName": "csr-"}, "spec": {**spec_for(f"system:node:{node.name}"), **spec}}
    return node.client.create(PLURAL, body)


def test_a_request_says_who_asked(node: NodeUnderTest) -> None:
    made = ask(node, username="somebody", groups=["else"])
    assert made["spec"]["username"] == f"system:node:{node.name}"
    assert made["spec"]["groups"] == ["system:nodes", "system:authenticated"]
    assert made["status"] == {}


def test_a_node_sees_requests_and_approves_none(node: NodeUnderTest, asked: dict[str, Any]) -> None:
    name = asked["metadata"]["name"]
    assert node.client.get(PLURAL, name)["spec"] == asked["spec"]
    asked["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "me"}]}
    with pytest.raises(StatusError) as error:
        node.client.replace(PLURAL, asked, "approval")
    assert error.value.code == 403


def test_an_approval_changes_only_conditions(admin: ApiClient, asked: dict[str, Any]) -> None:
    asked["status"] = {
        "conditions": [{"type": "Approved", "status": "True", "reason": "me", "message": "yes"}],
        "certificate": base64.b64encode(b"x").decode(),
    }
    approved = admin.replace(PLURAL, asked, "approval")
    (condition,) = approved["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Approved", "True", "me")
    assert condition["lastUpdateTime"].endswith("Z")
    assert "certificate" not in approved["status"]


def test_the_spec_of_a_request_never_changes(admin: ApiClient, asked: dict[str, Any]) -> None:
    changed = admin.patch(PLURAL, asked["metadata"]["name"], {"spec": {"signerName": "example.com/other"}})
    assert changed["spec"] == asked["spec"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [({"request": base64.b64encode(b"x").decode()}, 403), ({"usages": []}, 422), ({"signerName": ""}, 422)],
)
def test_a_request_that_is_none_is_refused(node: NodeUnderTest, spec: dict[str, Any], code: int) -> None:
    with pytest.raises(StatusError) as error:
        ask(node, **spec)
    assert error.value.code == code
