"""The CertificateSigningRequest object. Source: certificates/v1."""

from __future__ import annotations

from typing import Final

from .meta import ApiStruct, ObjectMeta, constant

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"


class CertificateSigningRequestSpec(ApiStruct, frozen=True, kw_only=True):
    """Content of a CertificateSigningRequest.

    `request`: the PKCS #10 request in PEM form, with public key and subject. `signer_name`: signer that is to
    issue the certificate. `usages`: key usages, such as ``client auth``. `expiration_seconds`: requested
    validity; None: the signer chooses it.
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
    """Decisions about the request, and the issued certificate.

    `certificate`: in PEM form; empty until it is issued.
    """

    conditions: tuple[CertificateSigningRequestCondition, ...] = ()
    certificate: bytes = b""


class CertificateSigningRequest(ApiStruct, frozen=True, kw_only=True):
    """CertificateSigningRequest: asks a signer, such as `CLIENT_SIGNER`, to issue a certificate."""

    api_version: str = constant("certificates.k8s.io/v1")
    kind: str = constant("CertificateSigningRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()
