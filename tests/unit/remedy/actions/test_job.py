"""Remedies that are Jobs: one run per operation, and only an ended job counts."""

from __future__ import annotations

import pytest

from kubeletx.remedy.actions.job import POD_NAME, TIMESTAMP, JobAction
from kubeletx.remedy.model import FenceProof, MethodResult
from kubeletx_testing.apiserver.faults import Rule
from kubeletx_testing.waiting import until
from tests.unit.remedy.actions.remedy_cluster import NAMESPACE, NODE, POLL_SECONDS, RemedyCluster

TEMPLATE = {"spec": {"containers": [{"name": "repair", "image": "repair:1", "command": ["repair"]}]}}
SHORT_SECONDS = 0.5


@pytest.fixture
def action(cluster: RemedyCluster) -> JobAction:
    return JobAction(cluster.client, clock=cluster.clock, namespace=NAMESPACE, poll_seconds=POLL_SECONDS)


async def test_a_job_that_completes_gives_the_proof_of_its_method(
    cluster: RemedyCluster, action: JobAction
) -> None:
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE, proof=FenceProof.POWER)))
    cluster.end_job(await cluster.job(), "Complete")
    outcome = await run
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))
    spec = (await cluster.job())["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 60)


@pytest.mark.parametrize(
    ("reason", "result"),
    [("BackoffLimitExceeded", MethodResult.FAILED), ("DeadlineExceeded", MethodResult.UNKNOWN)],
)
async def test_a_failed_job_proves_nothing(
    cluster: RemedyCluster, action: JobAction, reason: str, result: MethodResult
) -> None:
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE, proof=FenceProof.POWER)))
    cluster.end_job(await cluster.job(), "Failed", reason)
    outcome = await run
    assert (outcome.result, outcome.proofs) == (result, ())
    assert reason in outcome.message


async def test_a_job_without_an_end_is_unknown_and_suspended(
    cluster: RemedyCluster, action: JobAction
) -> None:
    task = cluster.task(definition=TEMPLATE, seconds=SHORT_SECONDS, is_repeat=True)
    cluster.create_job(task)
    assert (await action.run(task)).result is MethodResult.UNKNOWN
    assert (await cluster.job())["spec"]["suspend"] is True


async def test_a_deleted_job_is_unknown_and_not_created_again(
    cluster: RemedyCluster, action: JobAction
) -> None:
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    job = await cluster.job()
    cluster.admin.delete("jobs", job["metadata"]["name"], NAMESPACE, propagationPolicy="Background")
    assert (await run).result is MethodResult.UNKNOWN
    again = await action.run(cluster.task(definition=TEMPLATE, is_repeat=True))
    assert again.result is MethodResult.UNKNOWN
    assert cluster.find_job() is None


async def test_a_new_leader_finds_the_job_that_runs(cluster: RemedyCluster, action: JobAction) -> None:
    first = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    job = await cluster.job()
    first.cancel()
    second = cluster.start(action.run(cluster.task(definition=TEMPLATE, is_repeat=True)))
    cluster.end_job(job, "Complete")
    assert (await second).result is MethodResult.DONE
    assert (await cluster.job())["metadata"]["uid"] == job["metadata"]["uid"]


async def test_a_create_whose_answer_was_lost_acts_once(cluster: RemedyCluster, action: JobAction) -> None:
    task = cluster.task(definition=TEMPLATE)
    job = cluster.create_job(task)
    run = cluster.start(action.run(task))
    await until(lambda: cluster.api.requests.all(method="GET", path=job["metadata"]["name"]))
    cluster.end_job(job, "Complete")
    assert (await run).result is MethodResult.DONE


async def test_a_refused_job_has_not_acted(cluster: RemedyCluster, action: JobAction) -> None:
    cluster.api.faults.add(Rule(code=422, methods=("POST",), path="/jobs"))
    outcome = await action.run(cluster.task(definition=TEMPLATE))
    assert outcome.result is MethodResult.FAILED
    assert "cannot be created" in outcome.message


async def test_an_outage_during_the_run_is_waited_out(cluster: RemedyCluster, action: JobAction) -> None:
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    job = await cluster.job()
    outage = cluster.api.faults.add(Rule(code=503, methods=("GET",), path=job["metadata"]["name"]))
    await until(lambda: outage.hits)
    cluster.api.faults.clear()
    cluster.end_job(job, "Complete")
    assert (await run).result is MethodResult.DONE


async def test_the_node_names_the_pod_while_the_job_runs(cluster: RemedyCluster, action: JobAction) -> None:
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    job = await cluster.job()
    cluster.add_pod(job, "repair-abc")
    await until(lambda: POD_NAME in cluster.annotations())
    assert cluster.annotations()[POD_NAME] == "repair-abc"
    assert cluster.annotations()[TIMESTAMP]
    cluster.end_job(job, "Complete")
    await run
    assert {POD_NAME, TIMESTAMP}.isdisjoint(cluster.annotations())


async def test_a_job_waits_for_pods_of_earlier_remedies_of_the_node(
    cluster: RemedyCluster, action: JobAction
) -> None:
    cluster.add_pod(cluster.create_job(cluster.task("op-0", definition=TEMPLATE)), "old")
    late = await action.run(cluster.task(definition=TEMPLATE, seconds=SHORT_SECONDS))
    assert late.result is MethodResult.FAILED
    assert "earlier remedy" in late.message
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    await until(lambda: cluster.find_job("op-0") is None)
    assert cluster.find_job() is None
    cluster.admin.delete("pods", "old", NAMESPACE, gracePeriodSeconds=0)
    cluster.end_job(await cluster.job(), "Complete")
    assert (await run).result is MethodResult.DONE


async def test_a_pod_that_hangs_on_the_sick_node_does_not_hold_up_the_next_remedy(
    cluster: RemedyCluster, action: JobAction
) -> None:
    cluster.add_pod(cluster.create_job(cluster.task("op-0", definition=TEMPLATE)), "old", node=NODE)
    run = cluster.start(action.run(cluster.task(definition=TEMPLATE)))
    cluster.end_job(await cluster.job(), "Complete")
    assert (await run).result is MethodResult.DONE


async def test_jobs_are_deleted_when_the_flow_has_ended(cluster: RemedyCluster, action: JobAction) -> None:
    task = cluster.task(definition=TEMPLATE)
    cluster.create_job(task)
    await action.clean(cluster.node, task.method)
    assert cluster.find_job() is None
