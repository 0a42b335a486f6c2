"""All metrics: the page that lists them, and the metrics of certificates."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

from kubeletx.agent.cluster.access import CLIENT_PURPOSE, SERVER_PURPOSE
from kubeletx.api.counting import LabelledDurations
from kubeletx.apiserver.certificates.key_pairs import KeyPair
from kubeletx.apiserver.certificates.rotation import CertificateRotation
from kubeletx.node.cgroups.pods import PodCgroupManager
from tests.unit.agent.agent_model import AgentModel, a_pod
from tests.unit.agent.backend.metrics_model import more_metrics, rotation
from tests.unit.docs.pages import DOCS, rows, section, words


def values(of: CertificateRotation) -> dict[str, object]:
    return {one.name: value for one in of.metrics() if one.kind != "histogram" for _, value in one.samples()}


async def test_only_certificates_that_are_renewed_here_are_counted(agent: AgentModel) -> None:
    async with agent.running() as backend:
        assert not any("certificate" in one.name for one in await backend.about.metrics())
    client, server = rotation(CLIENT_PURPOSE), rotation(SERVER_PURPOSE)
    client.errors = 2
    expired = agent.clock.now() - timedelta(seconds=1.5)
    server.current = cast(KeyPair, SimpleNamespace(not_after=expired))
    assert values(client) == {
        "kubelet_certificate_manager_client_ttl_seconds": math.inf,
        "kubelet_certificate_manager_client_expiration_renew_errors": 2,
    }
    assert values(server) == {
        "kubelet_certificate_manager_server_ttl_seconds": -1,
        "kubelet_server_expiration_renew_errors": 0,
    }


async def test_the_reference_lists_every_metric_with_its_labels(agent: AgentModel) -> None:
    cgroups = cast(PodCgroupManager, SimpleNamespace(durations=LabelledDurations()))
    async with agent.running() as backend:
        metrics = [
            *await backend.about.metrics(),
            *more_metrics(),
            *PodCgroupManager.metrics(cgroups),
        ]
    table = {
        words(row[0])[0]: {word for word in re.split(r",\s*", row[1]) if word}
        for row in rows(section((DOCS / "reference.md").read_text(), "Metrics"))
    }
    assert table == {one.name: set(one.labels) for one in metrics if not one.name.startswith("prober_")}
    assert {one.kind for one in metrics} == {"counter", "gauge", "histogram"}
    assert all(one.text and one.text != one.name for one in metrics)
    assert all(one.kind == "counter" for one in metrics if one.name.endswith("_total"))


async def test_each_pod_and_container_has_the_series_of_its_present_state(agent: AgentModel) -> None:
    async with agent.running() as backend:
        web = await agent.apply(a_pod())
        lost = (await backend.pods.apply_pod(a_pod("lost", runtime="none"))).pod
        await agent.until(lambda: agent.phase("lost") == "Pending")
        assert await agent.metric("kubeletx_pod_info") == {
            f"default,lost,{lost.uid},,applied": 1,
            f"default,web,{web.uid},one,applied": 1,
        }
        assert await agent.metric("kubeletx_pod_phase") == {
            "default,lost,Pending": 1,
            "default,web,Running": 1,
        }
        assert await agent.metric("kubeletx_pod_ready") == {"default,lost": 0, "default,web": 1}
        assert await agent.metric("kubeletx_pod_standby") == {}
        assert set(await agent.metric("kubeletx_pod_start_time_seconds")) == {"default,web"}
        assert (await agent.metric("kubeletx_container_waiting"))["default,lost,main,ContainerCreating"] == 1

        (unit,) = agent.runtimes["one"].backend.units
        agent.runtimes["one"].backend.exit_unit(unit, exit_code=3)
        restarts = {"default,lost,main": 0, "default,web,main": 1}
        async with asyncio.timeout(60):
            while await agent.metric("kubeletx_container_restarts_total") != restarts:
                await agent.clock.run_for(0.05)
        assert await agent.metric("kubeletx_container_last_exit_code") == {"default,web,main,Error": 3}
        assert await agent.metric("kubeletx_container_ready") == {
            "default,lost,main": 0,
            "default,web,main": 1,
        }
