"""The lock of a Lease on an API server; its timing is tested with a model (tests/unit/kube/client)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lease_lock import LeaseLock, LockLost, LockTimes
from kubeletx_testing.apiserver import ApiClient
from kubeletx_testing.waiting import let_others_work
from testing.tests.compared.api_cluster import GUARD_SECONDS

QUICK = LockTimes(duration_seconds=20, renew_seconds=15.0, retry_seconds=0.05)


def lock(client: KubeClient, namespace: str, identity: str) -> LeaseLock:
    return LeaseLock(
        client, namespace=namespace, name="leader", identity=identity, clock=SystemClock(), times=QUICK
    )


async def test_the_lease_names_its_holder(admin: ApiClient, client: KubeClient, namespace: str) -> None:
    one, other = lock(client, namespace, "one"), lock(client, namespace, "other")
    assert await one.try_acquire()
    assert not await other.try_acquire()
    await one.renew()
    spec = admin.get("leases", "leader", namespace)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 20)
    await one.release()
    spec = admin.get("leases", "leader", namespace)["spec"]
    assert (spec.get("holderIdentity", ""), spec["leaseDurationSeconds"]) == ("", 1)
    assert await other.try_acquire()
    spec = admin.get("leases", "leader", namespace)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("other", 1)


async def test_a_lease_that_another_took_is_lost(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    one = lock(client, namespace, "one")
    await one.try_acquire()
    admin.patch("leases", "leader", {"metadata": {"labels": {"a": "b"}}}, namespace)
    await one.renew()
    admin.patch("leases", "leader", {"spec": {"holderIdentity": "thief"}}, namespace)
    with pytest.raises(LockLost, match="thief"):
        await one.renew()


async def test_five_candidates_work_one_after_the_other(client: KubeClient, namespace: str) -> None:
    working, most, turns = itertools.count(1), 0, 0
    inside = 0

    async def work() -> None:
        nonlocal inside, most, turns
        inside += 1
        most, turns = max(most, inside), turns + 1
        await let_others_work()
        inside -= 1

    async def compete() -> None:
        candidate = lock(client, namespace, f"candidate-{next(working)}")
        for _ in range(3):
            await candidate.run(work)

    async with asyncio.timeout(GUARD_SECONDS):
        await asyncio.gather(*(compete() for _ in range(5)))
    assert (most, turns) == (1, 15)
