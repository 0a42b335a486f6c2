"""The CertificateSigningRequest object. Source: certificates/v1."""

from __future__ import annotations

from typing import Final

from .meta import ApiStruct, ObjectMeta, constant

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"


class CertificateSigningRequestSpec(ApiStruct, frozen=True, kw_only=True):
    """A request for a certificate: the key and subject, the signer and the use.

    `request`: the PKCS #10 request in PEM form.
    """

    request: bytes = b""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()


class CertificateSigningRequestCondition(ApiStruct, frozen=True, kw_only=True):
    """One decision about the request by an approver or the signer.

    `type`: Approved, Denied or Failed.
    """

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class CertificateSigningRequestStatus(ApiStruct, frozen=True, kw_only=True):
    """Decisions about the request, and the certificate once it is issued.

    `certificate`: in PEM form; empty before.
    """

    conditions: tuple[CertificateSigningRequestCondition, ...] = ()
    certificate: bytes = b""


class CertificateSigningRequest(ApiStruct, frozen=True, kw_only=True):
    """Request to a signer of the cluster for a certificate."""

    api_version: str = constant("certificates.k8s.io/v1")
    kind: str = constant("CertificateSigningRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()
