"""Jobs in the API server double: defaults, generated selectors, and validation of the status.

No job controller runs their pods; a test sets the status. Source: kubernetes, pkg/apis/batch/v1/defaults.go,
pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import Json, invalid
from .pods import complete_template
from .resources import resource

JOBS: Final = resource("jobs")
_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_DEFAULTS: Final[Json] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
_IMMUTABLE: Final = ("selector", "template", "completionMode")

Cause = tuple[str, str, str]


def new_job(made: Json) -> Json:
    """Return a new job with its defaults and without a status.

    Unless ``spec.manualSelector`` is set, it gets a selector and pod labels with the job's UID. Raises
    StatusError 400 or 422 if it is invalid.
    """
    spec = _defaulted(made.get("spec") or {})
    metadata, template = made["metadata"], dict(spec.get("template") or {})
    if not spec["manualSelector"]:
        uid, name = metadata["uid"], metadata["name"]
        own = {_UID: uid, _NAME: name, "controller-uid": uid, "job-name": name}
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **own}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        spec = {**spec, "selector": {"matchLabels": {_UID: uid}}}
    spec["template"] = complete_template(template)
    if causes := list(_causes(spec["template"])):
        raise invalid(JOBS, metadata["name"], causes)
    return {**made, "spec": spec, "status": {}}


def change_job(old: Json, new: Json) -> Json:
    """Return the job to store when `old` is changed to `new` through the main resource.

    The status of `old` is kept. Raises StatusError 422 if an immutable field changed.
    """
    spec = _defaulted(new.get("spec") or {})
    spec["template"] = complete_template(spec.get("template") or {})
    changed = [field for field in _IMMUTABLE if spec.get(field) != old["spec"].get(field)]
    if changed:
        problem = "Invalid value: field is immutable"
        causes = [(f"spec.{field}", "FieldValueInvalid", problem) for field in changed]
        raise invalid(JOBS, old["metadata"]["name"], causes)
    return {**new, "spec": spec, "status": old.get("status", {})}


def change_job_status(old: Json, new: Json) -> Json:
    """Return the job to store when the status of `old` is changed: `old` with metadata and status of `new`.

    Raises StatusError 422 for an invalid status. For example, the condition Complete requires the condition
    SuccessCriteriaMet.
    """
    status = new.get("status") or {}
    if causes := list(_status_causes(status)):
        raise invalid(JOBS, old["metadata"]["name"], causes)
    return {**old, "metadata": new["metadata"], "status": status}


def _defaulted(spec: Json) -> Json:
    made = {**_DEFAULTS, **spec}
    if "completions" not in made and "parallelism" not in made:
        made["completions"] = 1
    return {"parallelism": 1, **made}


def _causes(template: Json) -> Iterator[Cause]:
    policy = template["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        problem = 'Required value: valid values: "OnFailure", "Never"'
        yield "spec.template.spec.restartPolicy", "FieldValueRequired", problem


def _status_causes(status: Json) -> Iterator[Cause]:
    held = {
        condition["type"] for condition in status.get("conditions") or () if condition.get("status") == "True"
    }
    is_finished = bool(held & {"Complete", "Failed"})
    for end, first in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if end in held and first not in held:
            problem = f"Invalid value: cannot set {end}=True condition without the {first}=true condition"
            yield "status.conditions", "FieldValueInvalid", problem
    if "Complete" in held and not status.get("completionTime"):
        problem = "Required value: completionTime is required for Complete jobs"
        yield "status.completionTime", "FieldValueRequired", problem
    if status.get("completionTime") and "Complete" not in held:
        problem = "Invalid value: cannot set completionTime when there is no Complete=True condition"
        yield "status.completionTime", "FieldValueInvalid", problem
    if is_finished and not status.get("startTime"):
        problem = "Required value: startTime is required for finished job"
        yield "status.startTime", "FieldValueRequired", problem
    if is_finished and status.get("active", 0) > 0:
        problem = f"Invalid value: {status['active']}: active>0 is invalid for finished job"
        yield "status.active", "FieldValueInvalid", problem
