"""CustomResourceDefinitions: defaults, validation, and the conditions under which their resources are served.

The double sets the conditions when a definition is created; a real server sets them a moment later. Source:
apiextensions-apiserver, pkg/registry/customresourcedefinition, pkg/apis/apiextensions/validation,
pkg/controller/{establish,status,finalizer}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .catalog import DEFINITIONS
from .errors import Json, bad_request, forbidden, invalid
from .resources import Resource
from .settings import Settings, timestamp
from .store import Store
from .structural import not_structural

FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_APPROVAL: Final = "api-approved.kubernetes.io"
_PROTECTED: Final = ("k8s.io", "kubernetes.io")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")

Cause = tuple[str, str, str]


def new_definition(made: Json, settings: Settings) -> Json:
    """Return a new CustomResourceDefinition with defaults and the condition Established.

    Raises StatusError 422 if it is invalid, and 400 if it does not serve exactly one version.
    """
    spec = _defaulted(made.get("spec") or {})
    made = {**made, "spec": spec}
    if causes := list(_causes(made)):
        raise invalid(DEFINITIONS, made["metadata"]["name"], causes)
    if sum(bool(version.get("served")) for version in spec["versions"]) != 1:
        raise bad_request("the double serves one version of a custom resource: set served in one of them")
    stored = next(version["name"] for version in spec["versions"] if version["storage"])
    status = {
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", settings),
            _condition(
                "Established", "InitialNamesAccepted", "the initial names have been accepted", settings
            ),
        ],
        "acceptedNames": spec["names"],
        "storedVersions": [stored],
    }
    return {**made, "status": status}


def change_definition(old: Json, new: Json) -> Json:
    """Return the CustomResourceDefinition `new` with defaults and the status of `old`.

    Raises StatusError 422.
    """
    made = {**new, "spec": _defaulted(new.get("spec") or {}), "status": old["status"]}
    causes = list(_causes(made))
    for field in ("scope",):
        if made["spec"].get(field) != old["spec"][field]:
            problem = f'Invalid value: "{made["spec"].get(field)}": field is immutable'
            causes.append((f"spec.{field}", "FieldValueInvalid", problem))
    if causes:
        raise invalid(DEFINITIONS, old["metadata"]["name"], causes)
    return made


def marked(definition: Json, settings: Settings) -> Json:
    """Mark a CustomResourceDefinition for deletion; return the marked copy.

    Adds the condition Terminating, and a finalizer that keeps the definition until all its custom objects are
    deleted. A definition that is marked already is returned unchanged.
    """
    metadata = definition["metadata"]
    if "deletionTimestamp" in metadata:
        return definition
    held = {
        "deletionTimestamp": timestamp(settings.now()),
        "deletionGracePeriodSeconds": 0,
        "finalizers": [*(metadata.get("finalizers") or []), FINALIZER],
    }
    ends = _condition("Terminating", "InstanceDeletionPending", "", settings)
    status = {**definition["status"], "conditions": [*definition["status"]["conditions"], ends]}
    return {**definition, "metadata": {**metadata, **held}, "status": status}


def is_terminating(store: Store, of: Resource) -> bool:
    """Return True if `of` is a custom resource whose definition is being deleted."""
    stored = store.find(DEFINITIONS, ("", of.full_name))
    return stored is not None and "deletionTimestamp" in stored.value["metadata"]


def check_served(store: Store, of: Resource, name: str) -> None:
    """Raise StatusError 403 if `of` is a custom resource whose definition is being deleted.

    Called before an object of the resource is created. `name`: name of this object.
    """
    if is_terminating(store, of):
        raise forbidden(of, name, "create not allowed while custom resource definition is terminating")


def _defaulted(spec: Json) -> Json:
    names = dict(spec.get("names") or {})
    kind = names.get("kind", "")
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    return {"conversion": {"strategy": "None"}, **spec, "names": names}


def _causes(definition: Json) -> Iterator[Cause]:
    spec, metadata = definition["spec"], definition["metadata"]
    group, names, versions = spec.get("group", ""), spec["names"], spec.get("versions") or []
    wanted = f"{names.get('plural', '')}.{group}"
    if metadata["name"] != wanted:
        problem = f'Invalid value: "{metadata["name"]}": must be spec.names.plural+"."+spec.group'
        yield "metadata.name", "FieldValueInvalid", problem
    if any(group == protected or group.endswith(f".{protected}") for protected in _PROTECTED) and not (
        metadata.get("annotations") or {}
    ).get(_APPROVAL):
        problem = f'Required value: protected groups must have approval annotation "{_APPROVAL}"'
        yield f"metadata.annotations[{_APPROVAL}]", "FieldValueRequired", problem
    for field in ("plural", "kind"):
        if not names.get(field):
            yield f"spec.names.{field}", "FieldValueRequired", "Required value"
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        problem = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        yield "spec.scope", "FieldValueNotSupported", problem
    if sum(bool(version.get("storage")) for version in versions) != 1:
        problem = "Invalid value: must have exactly one version marked as storage version"
        yield "spec.versions", "FieldValueInvalid", problem
    for index, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"spec.versions[{index}]."
        field = f"{path}schema.openAPIV3Schema"
        if len(versions) == 1 and schema is not None:  # the server moves what all versions share
            path, field = "spec.", "spec.validation.openAPIV3Schema"
        if schema is None:
            yield field, "FieldValueRequired", "Required value: schemas are required"
        else:
            yield from not_structural(schema, field)
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _wrong_columns(column, f"{path}additionalPrinterColumns[{number}]")


def _wrong_columns(column: Json, path: str) -> Iterator[Cause]:
    for field, shown in (("name", "name"), ("type", "type"), ("jsonPath", "JSONPath")):
        if not column.get(field):
            yield f"{path}.{shown}", "FieldValueRequired", "Required value"
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        problem = f'Invalid value: "{column["type"]}": must be one of {",".join(_COLUMN_TYPES)}'
        yield f"{path}.type", "FieldValueInvalid", problem
    if column.get("jsonPath") and not column["jsonPath"].startswith("."):
        problem = f'Invalid value: "{column["jsonPath"]}": must be a simple json path starting with .'
        yield f"{path}.JSONPath", "FieldValueInvalid", problem


def _condition(type_: str, reason: str, message: str, settings: Settings) -> Json:
    at = timestamp(settings.now())
    return {"type": type_, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message}
