"""What metrics say of certificates."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

from kubeletx.agent.backend.counted import SecretFigures
from kubeletx.apiserver.certificates.rotation import CertificateRotation
from kubeletx.runtimes.images.provider_config import ProviderPlan
from kubeletx.runtimes.images.providers import CredentialProviders
from kubeletx.testing import FakeClock


def rotation(ttl_seconds: float | None, errors: int) -> CertificateRotation:
    return cast(CertificateRotation, SimpleNamespace(ttl_seconds=ttl_seconds, errors=errors))


def test_only_certificates_that_are_renewed_here_are_counted() -> None:
    providers = CredentialProviders(ProviderPlan(), cluster={}, clock=FakeClock())
    assert SecretFigures(providers=providers).certificates() == {}
    both = SecretFigures(providers=providers, client=rotation(None, 2), server=rotation(-1.5, 0))
    assert both.certificates() == {
        "kubelet_certificate_manager_client_ttl_seconds": math.inf,
        "kubelet_certificate_manager_client_expiration_renew_errors": 2,
        "kubelet_certificate_manager_server_ttl_seconds": -1,
        "kubelet_server_expiration_renew_errors": 0,
    }
