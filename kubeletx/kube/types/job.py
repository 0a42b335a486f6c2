"""The Job object. Source: batch/v1 Job."""

from __future__ import annotations

import enum
from datetime import datetime

from .core import PodSpec
from .meta import ApiStruct, LabelSelector, ListMeta, ObjectMeta, constant, cut_to_seconds


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """The pod that a job makes. Source: core/v1 PodTemplateSpec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired run. `backoff_limit`: pods that may fail before the job does. None: the server's default."""

    template: PodTemplate
    completions: int | None = None
    parallelism: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    selector: LabelSelector | None = None


class JobCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition, such as Complete, Failed, Suspended, SuccessCriteriaMet or FailureTarget."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """Counts of pods by their end, and conditions."""

    conditions: tuple[JobCondition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "start_time", "completion_time")


class Job(ApiStruct, frozen=True, kw_only=True):
    """Pods that run until one of them succeeds."""

    api_version: str = constant("batch/v1")
    kind: str = constant("Job")
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec
    status: JobStatus = JobStatus()


class JobList(ApiStruct, frozen=True, kw_only=True):
    """One page of jobs."""

    metadata: ListMeta = ListMeta()
    items: tuple[Job, ...] = ()


class JobEnd(enum.Enum):
    """The two ways a job ends; the values are its conditions."""

    COMPLETE = "Complete"
    FAILED = "Failed"


def job_end(job: Job) -> tuple[JobEnd, JobCondition] | None:
    """Return the job's end and the condition with its reason; None while it may still run.

    SuccessCriteriaMet and FailureTarget come before the end: pods of the job may still run under them.
    """
    for condition in job.status.conditions:
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            return JobEnd(condition.type), condition
    return None
