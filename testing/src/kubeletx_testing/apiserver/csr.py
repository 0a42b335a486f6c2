"""Certificate signing requests (CSRs): approval, and the two signers that nodes use (`CLIENT` and `SERVING`).

Source: kubernetes, pkg/registry/certificates/certificates/strategy.go; pkg/controller/certificates/{approver,
signer}; pkg/apis/certificates/v1/helpers.go ValidateKubeletServingCSR and ValidateKubeletClientCSR.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .ca import CertificateAuthority
from .errors import Json, StatusError, forbidden, invalid
from .resources import resource
from .settings import Settings, timestamp

CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING: Final = "kubernetes.io/kubelet-serving"
_USAGES: Final = {
    CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH, "client auth"),
    SERVING: (ExtendedKeyUsageOID.SERVER_AUTH, "server auth"),
}


def strip_new_request(made: Json, settings: Settings) -> Json:
    """Return a new CSR without the status that its author wrote; with `Settings.auto_approve` it is approved.

    Raises StatusError 403 or 422 for an invalid request. A request that its signer will refuse is stored like
    any other; it gets the condition Failed once it is approved.
    """
    spec = made.get("spec") or {}
    if not spec.get("signerName"):
        raise _refused(made, "spec.signerName", "Required value: ")
    if not spec.get("usages"):
        raise _refused(made, "spec.usages", "Required value: ")
    _parse(made)
    if settings.auto_approve and spec["signerName"] in _USAGES:
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": "Auto approving kubelet client certificate after SubjectAccessReview.",
            "lastUpdateTime": timestamp(settings.now()),
            "lastTransitionTime": timestamp(settings.now()),
        }
        return {**made, "status": {"conditions": [condition]}}
    return {**made, "status": {}}


def approved_by(old: Json, new: Json, settings: Settings) -> Json:
    """Return the CSR `old` with the metadata and the conditions of `new`; all else is unchanged.

    Conditions without times get the current time.
    """
    conditions = (new.get("status") or {}).get("conditions") or []
    stamp = timestamp(settings.now())
    filled = [{"lastUpdateTime": stamp, "lastTransitionTime": stamp, **condition} for condition in conditions]
    status = {**old.get("status", {}), "conditions": filled}
    return {**old, "metadata": new["metadata"], "status": status}


def sign_if_approved(value: Json, sign: Callable[[Json], str]) -> Json | None:
    """Return the CSR with its certificate; None if there is nothing to sign.

    A CSR is signed if it is approved, is for one of the two signers, and has neither a certificate nor the
    condition Denied or Failed. If the signer refuses the request, the returned CSR has the condition Failed
    and no certificate. `sign`: see `signer`.
    """
    status = value.get("status") or {}
    types = {
        condition["type"]
        for condition in status.get("conditions") or []
        if condition.get("status", "True") == "True"
    }
    if "Approved" not in types or types & {"Denied", "Failed"} or status.get("certificate"):
        return None
    if value["spec"]["signerName"] not in _USAGES:
        return None
    if problem := _problem(value):
        failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": problem}
        return {**value, "status": {**status, "conditions": [*status["conditions"], failed]}}
    certificate = base64.b64encode(sign(value).encode()).decode()
    return {**value, "status": {**status, "certificate": certificate}}


def signer(authority: CertificateAuthority, settings: Settings) -> Callable[[Json], str]:
    """Return a function that signs a CSR and returns the certificate in PEM.

    For an empty dict, the function returns the CA's own certificate.
    """

    def sign(value: Json) -> str:
        if not value:
            return authority.pem.decode()
        request = _parse(value)
        seconds = min(value["spec"].get("expirationSeconds") or 10**9, settings.certificate_seconds)
        usage, _ = _USAGES[value["spec"]["signerName"]]
        life = timedelta(seconds=seconds)
        return authority.sign(
            request.subject,
            request.public_key(),
            (usage,),
            _hosts(request),
            life,
            timedelta(minutes=5),
            settings.now(),
        ).decode()

    return sign


def _parse(value: Json) -> x509.CertificateSigningRequest:
    """Decode the PKCS #10 request in ``spec.request``.

    Raises StatusError 403 if it cannot be decoded, as admission in a real server does before validation.
    Source: plugin/pkg/admission/certificates/subjectrestriction/admission.go.
    """
    try:
        return x509.load_pem_x509_csr(base64.b64decode(value["spec"].get("request") or ""))
    except ValueError as err:
        of = resource("certificatesigningrequests")
        raise forbidden(of, value["metadata"]["name"], f"unable to parse CSR: {err}") from err


def _problem(value: Json) -> str:
    """Return why the signer refuses the request; empty if the signer accepts it."""
    spec, request = value["spec"], _parse(value)
    users = [
        str(attribute.value) for attribute in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    groups = [
        attribute.value for attribute in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    if groups != ["system:nodes"]:
        return "subject organization is not system:nodes"
    if len(users) != 1 or not users[0].startswith("system:node:"):
        return "subject common name does not begin with system:node:"
    needed = {_USAGES[spec["signerName"]][1], "digital signature"}
    if not needed <= set(spec["usages"]) <= {*needed, "key encipherment"}:
        return f"usages did not match {sorted(needed)}"
    hosts = _hosts(request)
    if spec["signerName"] == CLIENT and hosts:
        return "DNS and IP subjectAltNames are not allowed"
    if spec["signerName"] == SERVING and not hosts:
        return "DNS or IP subjectAltName is required"
    if spec["signerName"] == SERVING and spec.get("username") not in (None, *users):
        return f"common name {users[0]} is not the requesting user {spec['username']}"
    return ""


def _hosts(request: x509.CertificateSigningRequest) -> list[str]:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _refused(value: Json, where: str, problem: str) -> StatusError:
    name = value["metadata"]["name"]
    return invalid(resource("certificatesigningrequests"), name, [(where, "FieldValueInvalid", problem)])
