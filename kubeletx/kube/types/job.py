"""The Job object. Source: batch/v1 Job."""

from __future__ import annotations

import enum
from datetime import datetime

from .core import PodSpec
from .meta import ApiStruct, LabelSelector, ListMeta, ObjectMeta, constant, cut_to_seconds


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """Template of the pods that a job creates. Source: core/v1 PodTemplateSpec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """Specification of a job. A field that is None gets the API server's default.

    `backoff_limit`: number of pods that may fail before the job fails.
    """

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
    """One condition of a job, such as Complete, Failed, Suspended, SuccessCriteriaMet or FailureTarget."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a job: its conditions, and the numbers of its pods that are active, succeeded or failed."""

    conditions: tuple[JobCondition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "start_time", "completion_time")


class Job(ApiStruct, frozen=True, kw_only=True):
    """A job: runs pods until enough of them have succeeded."""

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
    """End of a job; the values are the types of the conditions that report it."""

    COMPLETE = "Complete"
    FAILED = "Failed"


def job_end(job: Job) -> tuple[JobEnd, JobCondition] | None:
    """Return how the job ended, with the condition that gives the reason; None while its pods may still run.

    The conditions SuccessCriteriaMet and FailureTarget are ignored: the job gets them before its pods have
    stopped.
    """
    for condition in job.status.conditions:
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            return JobEnd(condition.type), condition
    return None
