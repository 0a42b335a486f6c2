"""`obtain`: requests a certificate from the cluster with a CertificateSigningRequest and waits for it.

The agent does not approve requests: the controller manager approves client certificates of nodes if RBAC permits it;
for serving certificates the operator must provide an approver. Source: client-go, util/certificate/csr/csr.go; kubelet,
pkg/kubelet/certificate/bootstrap/bootstrap.go (request names computed from the request, so that a retry finds the
earlier one).
"""

from __future__ import annotations

import base64
import hashlib

import structlog

from kubeletx.api import AlreadyExists, Clock, PermissionDenied, TimedOut, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import CERTIFICATE_REQUESTS
from kubeletx.kube.types.certificates import CertificateSigningRequest, CertificateSigningRequestSpec
from kubeletx.kube.types.meta import ObjectMeta

from .key_pairs import KeyPair, Subject, make_request, parse_pair, public_part

log = structlog.get_logger(__name__)

WAIT_SECONDS = 900.0
"""Seconds to wait for approval before a new request."""
_LOOK_FIRST, _LOOK_CAP = 0.25, 5.0


async def obtain(
    client: KubeClient, key: bytes, subject: Subject, *, signer: str, usage: str, clock: Clock
) -> KeyPair:
    """Request a certificate for the private key `key`, wait until it is issued, and return it with the key.

    `signer`: signer name of the request. `usage`: ``client auth`` or ``server auth``. The same key, subject and signer
    give the same request name, so a retry finds the earlier request and its approval.

    Raises PermissionDenied if the request was denied or failed, TimedOut if there is no certificate after
    `WAIT_SECONDS`, and the API server's errors.
    """
    wanted = CertificateSigningRequest(
        metadata=ObjectMeta(name=_name(key, subject, signer)),
        spec=CertificateSigningRequestSpec(
            request=make_request(key, subject), signer_name=signer, usages=("digital signature", usage)
        ),
    )
    path = CERTIFICATE_REQUESTS.path(name=wanted.metadata.name)
    try:
        await client.create(CERTIFICATE_REQUESTS.path(), wanted, CertificateSigningRequest)
    except AlreadyExists:
        pass
    else:
        log.info("Requested a certificate", request=wanted.metadata.name, signer=signer)
    backoff, until = server_backoff(first=_LOOK_FIRST, cap=_LOOK_CAP), clock.monotonic() + WAIT_SECONDS
    while clock.monotonic() < until:
        least = 0.0
        try:
            request = await client.get(path, CertificateSigningRequest)
        except (Unavailable, TimedOut) as error:
            log.debug("Cannot ask for the state of a certificate request", err=str(error))
            least = least_seconds(error)
        else:
            if (answer := _answer(request)) is not None:
                return parse_pair(answer + key, f"certificate request {wanted.metadata.name}")
        await clock.sleep(backoff.next(clock.monotonic(), at_least=least))
    raise TimedOut(
        f"certificate request {wanted.metadata.name}: not approved within {WAIT_SECONDS:g} s; "
        f"approve it with 'kubectl certificate approve {wanted.metadata.name}'"
    )


def _answer(request: CertificateSigningRequest) -> bytes | None:
    """Return the certificate in PEM form; None if it is not issued yet.

    Raises PermissionDenied if the request was denied or failed.
    """
    for condition in request.status.conditions:
        if condition.type in ("Denied", "Failed"):
            why = condition.message or condition.reason or "no reason given"
            raise PermissionDenied(
                f"certificate request {request.metadata.name}: {condition.type.lower()}: {why}"
            )
    return request.status.certificate or None


def _name(key: bytes, subject: Subject, signer: str) -> str:
    """Compute the request's name, which is the same for the same key, subject and signer."""
    digest = hashlib.sha256()
    for part in (
        public_part(key),
        subject.common_name.encode(),
        *(n.encode() for n in subject.dns_names),
        signer.encode(),
    ):
        digest.update(part + b"\0")
    text = base64.b32encode(digest.digest()).decode().lower().rstrip("=")
    return f"node-csr-{text[:43]}"
