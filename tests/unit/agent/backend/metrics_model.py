"""Metrics that only an agent in a cluster, under a FornaxCore, with credential providers or with plugins has, for tests of all metrics."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

from kubeletx.agent.cluster.access import CLIENT_PURPOSE, SERVER_PURPOSE
from kubeletx.agent.edge.conditions import metrics as edge_metrics
from kubeletx.api.counting import Metric
from kubeletx.apiserver.certificates.files import CertificateFiles
from kubeletx.apiserver.certificates.key_pairs import Subject
from kubeletx.apiserver.certificates.rotation import CertificateRotation, Purpose
from kubeletx.fornax.node_actor import NodeActor
from kubeletx.fornax.status import metrics as link_metrics
from kubeletx.health.topics import HealthStatus
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.counts import RequestCounts
from kubeletx.plugins.callbacks import CallbackCounts
from kubeletx.runtimes.images.provider_config import ProviderPlan
from kubeletx.runtimes.images.providers import CredentialProviders
from kubeletx.testing import FakeClock


def rotation(purpose: Purpose) -> CertificateRotation:
    """A rotation that has renewed no certificate; its task is not run."""
    return CertificateRotation(
        cast(KubeClient, None),
        cast(CertificateFiles, None),
        lambda: Subject(node_name="node"),
        purpose=purpose,
        clock=FakeClock(),
    )


def more_metrics() -> Iterator[Metric]:
    """Yield them with at least one sample each, as far as dashboards ask for them."""
    requests = RequestCounts()
    requests.answered("10.0.0.1:6443", "GET", "200", 0.01)
    yield from requests.metrics()
    for purpose in (CLIENT_PURPOSE, SERVER_PURPOSE):
        yield from rotation(purpose).metrics()
    yield from CallbackCounts().metrics()
    yield from CredentialProviders(ProviderPlan(digest="sha256:1"), cluster={}, clock=FakeClock()).metrics()
    actor = SimpleNamespace(links={}, revisions=SimpleNamespace(current=0))
    yield from link_metrics(cast(NodeActor, actor), {}, {})
    yield from edge_metrics(HealthStatus)
