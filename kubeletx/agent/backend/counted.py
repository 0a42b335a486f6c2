"""`Counted`: the objects of the agent that count calls, errors and durations, for a scrape of the metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.pods import Counters, PodManager, UnitProbes, VolumeBoard
from kubeletx.runtimes.images.providers import CredentialProviders
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.metrics.http_counts import HttpCounts
from kubeletx.volumes.preparer import VolumePreparer

if TYPE_CHECKING:
    from kubeletx.apiserver.certificates.rotation import CertificateRotation
    from kubeletx.kube.client.counts import RequestCounts
    from kubeletx.plugins.callbacks import CallbackCounts


class SecretFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of the metrics about certificates and registry credentials.

    `client`, `server`: rotation of the client certificate and of the serving certificate; None if that certificate
    is not rotated.
    """

    providers: CredentialProviders
    client: CertificateRotation | None = None
    server: CertificateRotation | None = None

    def certificates(self) -> dict[str, float]:
        """Return two metrics of each rotated certificate, by the kubelet's names of these metrics.

        They are the seconds until the certificate expires (infinite if there is none yet), and the number of failed
        renewals. Unlike other counters, the failure counters have no suffix ``_total``.
        """
        found: dict[str, float] = {}
        for rotation, ttl, errors in (
            (
                self.client,
                "certificate_manager_client_ttl_seconds",
                "certificate_manager_client_expiration_renew_errors",
            ),
            (self.server, "certificate_manager_server_ttl_seconds", "server_expiration_renew_errors"),
        ):
            if rotation is not None:
                seconds = rotation.ttl_seconds
                found[f"kubelet_{ttl}"] = math.inf if seconds is None else math.trunc(seconds)
                found[f"kubelet_{errors}"] = rotation.errors
        return found


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The objects whose counters a scrape of the metrics reads.

    `claims`: usage of persistent volume claims. `cgroups` None: the agent makes no cgroups. `requests`: counts
    requests to the API server; None if the node is in no cluster. `plugins`: counts calls to plugins other than
    runtimes; None if plugins register only runtimes.
    """

    registry: RuntimeRegistry
    manager: PodManager
    counters: Counters
    probes: UnitProbes
    claims: VolumeBoard
    volumes: VolumePreparer
    cgroups: PodCgroupManager | None
    secrets: SecretFigures
    http: HttpCounts
    requests: RequestCounts | None = None
    plugins: CallbackCounts | None = None
