"""Jobs: defaults, selectors, ends. No controller runs: the tests set the statuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import JOBS
from kubeletx.kube.types.core import Container, ObjectMeta, PodSpec
from kubeletx.kube.types.job import Job, JobEnd, JobList, JobSpec, PodTemplate, job_end
from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import refusal

MOMENT = "2026-01-01T00:00:00Z"


def job(name: str = "one", **spec: Any) -> Job:
    template = PodTemplate(
        metadata=ObjectMeta(labels={"app": "fence"}),
        spec=PodSpec(restart_policy="Never", containers=(Container(name="c", image="busybox"),)),
    )
    return Job(metadata=ObjectMeta(name=name), spec=JobSpec(template=template, **spec))


def ended(*conditions: str, **status: Any) -> dict[str, Any]:
    held = [{"type": condition, "status": "True", "reason": "Test"} for condition in conditions]
    return {"status": {"startTime": MOMENT, "conditions": held, **status}}


async def test_a_job_is_created_read_and_deleted(client: KubeClient, namespace: str) -> None:
    made = await client.create(JOBS.path(namespace), job(backoff_limit=2, ttl_seconds_after_finished=60), Job)
    assert (made.spec.backoff_limit, made.spec.completions, made.spec.parallelism) == (2, 1, 1)
    assert made.spec.selector is not None
    own = {"batch.kubernetes.io/controller-uid": made.metadata.uid}
    assert made.spec.selector.match_labels == own
    labels = made.spec.template.metadata.labels
    assert labels.items() >= {**own, "batch.kubernetes.io/job-name": "one", "app": "fence"}.items()
    assert job_end(made) is None
    found = await client.get(JOBS.path(namespace, "one"), Job)
    assert found.metadata.uid == made.metadata.uid
    await client.delete(JOBS.path(namespace, "one"), uid=made.metadata.uid, propagation="Background")
    assert (await client.get(JOBS.path(namespace), JobList)).items == ()


async def test_a_job_is_orphaned_unless_the_request_says_otherwise(
    admin: ApiClient, client: KubeClient, namespace: str
) -> None:
    await client.create(JOBS.path(namespace), job(), Job)
    await client.delete(JOBS.path(namespace, "one"))
    assert admin.get("jobs", "one", namespace)["metadata"]["finalizers"] == ["orphan"]
    admin.patch("jobs", "one", {"metadata": {"finalizers": None}}, namespace)


@pytest.mark.parametrize(
    ("patch", "end"),
    [
        (ended("SuccessCriteriaMet", "Complete", completionTime=MOMENT, succeeded=1), JobEnd.COMPLETE),
        (ended("FailureTarget", "Failed", failed=1), JobEnd.FAILED),
        (ended("FailureTarget", failed=1), None),
        (ended(active=1), None),
    ],
)
async def test_a_job_ends_complete_or_failed(
    admin: ApiClient, client: KubeClient, namespace: str, patch: dict[str, Any], end: JobEnd | None
) -> None:
    await client.create(JOBS.path(namespace), job(), Job)
    admin.patch("jobs", "one", patch, namespace, "status")
    found = job_end(await client.get(JOBS.path(namespace, "one"), Job))
    assert (found[0] if found is not None else None) is end
    if found is not None:
        assert found[1].reason == "Test"


@pytest.mark.parametrize(
    "patch",
    [
        ended("Complete", completionTime=MOMENT),
        ended("SuccessCriteriaMet", "Complete"),
        ended("Failed"),
        ended("FailureTarget", "Failed", startTime=None),
        ended("FailureTarget", "Failed", active=1),
    ],
)
async def test_an_end_without_what_comes_before_it_is_invalid(
    admin: ApiClient, client: KubeClient, namespace: str, patch: dict[str, Any]
) -> None:
    await client.create(JOBS.path(namespace), job(), Job)
    with pytest.raises(StatusError) as error:
        admin.patch("jobs", "one", patch, namespace, "status")
    assert refusal(error)[:2] == (422, "Invalid")


def test_pods_of_a_job_are_not_restarted_for_ever(admin: ApiClient, namespace: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    with pytest.raises(StatusError) as error:
        admin.create("jobs", {"metadata": {"name": "one"}, "spec": {"template": template}}, namespace)
    words = 'Job.batch "one" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert refusal(error) == (422, "Invalid", words)


async def test_the_template_of_a_job_stays(admin: ApiClient, client: KubeClient, namespace: str) -> None:
    await client.create(JOBS.path(namespace), job(), Job)
    patch = {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    with pytest.raises(StatusError) as error:
        admin.patch("jobs", "one", patch, namespace)
    assert refusal(error)[:2] == (422, "Invalid")
    changed = admin.patch("jobs", "one", {"spec": {"suspend": True}}, namespace)
    assert (changed["spec"]["suspend"], changed["metadata"]["generation"]) == (True, 2)
