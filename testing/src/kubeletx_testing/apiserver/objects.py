"""Metadata of every object: what the server sets and checks when an object is created or changed.

Source: apiserver, pkg/registry/rest/{create,update}.go BeforeCreate and BeforeUpdate; apimachinery,
pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from typing import Any, Final

from .errors import Json, bad_request, conflict, invalid
from .resources import Resource
from .settings import Settings, timestamp

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_MEANS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_KEPT: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def label_key_problem(text: str) -> str:
    """Return what is wrong with the key of a label, an annotation or a condition; empty if it is valid.

    Source: apimachinery, pkg/util/validation IsQualifiedName.
    """
    name = text.rpartition("/")[2]
    return "" if re.fullmatch(_PART, name) else f"name part {_MEANS}"


def check_metadata(resource: Resource, value: Json) -> None:
    """Raise StatusError 422 for invalid labels, annotation keys or finalizers. Source: ValidateObjectMeta."""
    metadata, causes = value["metadata"], []
    for field in ("labels", "annotations"):
        for key, text in (metadata.get(field) or {}).items():
            if problem := label_key_problem(key if field == "labels" else key.lower()):
                causes.append(
                    (f"metadata.{field}", "FieldValueInvalid", f'Invalid value: "{key}": {problem}')
                )
            if field == "labels" and text and not re.fullmatch(_PART, text):
                causes.append(
                    (f"metadata.{field}", "FieldValueInvalid", f'Invalid value: "{text}": {_VALUE}')
                )
    causes += _wrong_finalizers(resource, metadata.get("finalizers") or [])
    if causes:
        raise invalid(resource, metadata["name"], causes)


def _wrong_finalizers(resource: Resource, finalizers: list[str]) -> list[tuple[str, str, str]]:
    """Return a cause for each wrong finalizer. Only Kubernetes' own objects need a domain in its name."""
    field, causes = "metadata.finalizers", []
    for number, finalizer in enumerate(finalizers):
        if problem := label_key_problem(finalizer):
            causes.append((field, "FieldValueInvalid", f'Invalid value: "{finalizer}": {problem}'))
        elif "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and resource.custom is None:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(
                (f"{field}[{number}]", "FieldValueInvalid", f'Invalid value: "{finalizer}": {problem}')
            )
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        problem = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append((field, "FieldValueInvalid", f"Invalid value: {json.dumps(finalizers)}: {problem}"))
    return causes


def _check_new_finalizers(resource: Resource, before: Json, metadata: Json) -> None:
    """Raise StatusError 422 if an object that is being deleted gets a finalizer."""
    new = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
    if "deletionTimestamp" in before and new:
        words = ", ".join(json.dumps(finalizer) for finalizer in new)
        problem = (
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{words}}}"
        )
        raise invalid(resource, before["name"], [("metadata.finalizers", "FieldValueForbidden", problem)])


def suffix() -> str:
    """Return five random characters, as the server appends them to ``metadata.generateName``.

    Source: apimachinery, pkg/util/rand SafeEncodeString.
    """
    return "".join(random.choices(_LETTERS, k=5))


def new_object(resource: Resource, value: Json, namespace: str, settings: Settings) -> Json:
    """Return a copy of `value` with name, UID and creation time, ready to be stored.

    `namespace`: the namespace in the request's path. Raises StatusError 400 for another namespace in the
    object, 422 for an invalid name, label or annotation.
    """
    metadata = dict(value.get("metadata") or {})
    found = metadata.get("namespace") or namespace
    if found != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    for field in ("uid", "resourceVersion", "generation", "selfLink", *_KEPT):
        metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + suffix()
    if not metadata.get("name"):
        problem = "Required value: name or generateName is required"
        raise invalid(resource, "", [("metadata.name", "FieldValueRequired", problem)])
    name = metadata["name"]
    is_plain = resource.plural == "events" or _NAME.match(
        str(name)
    )  # names of events need only be path segments
    if not isinstance(name, str) or not is_plain or len(name) > 253:
        raise invalid(
            resource, str(name), [("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_RULE}')]
        )
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(settings.now())
    if resource.counts_generations:
        metadata["generation"] = 1
    kind = {"kind": resource.kind, "apiVersion": resource.api_version}
    made = {**kind, **value, **kind, "metadata": metadata}
    check_metadata(resource, made)
    return made


def changed_object(resource: Resource, old: Json, new: Json, is_patch: bool) -> Json:
    """Return the object to store when `old` is replaced by `new`.

    UID, creation time and deletion marks of `old` are kept. If `new` has a resourceVersion, it must be that
    of `old`. A different UID in `new` is answered with 409 for a PUT (a failed precondition) and 422 for a
    patch (an immutable field). Raises StatusError 400, 409 or 422.
    """
    before, metadata = old["metadata"], dict(new.get("metadata") or {})
    name = before["name"]
    version, uid = metadata.get("resourceVersion"), metadata.get("uid")
    if uid and uid != before["uid"]:
        if is_patch:
            cause = ("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable')
            raise invalid(resource, name, [cause])
        raise conflict(
            resource,
            name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}",
        )
    if version and version != before["resourceVersion"]:
        raise conflict(resource, name)
    if not version and resource.needs_version:
        problem = "Invalid value: 0: must be specified for an update"
        made = invalid(resource, name, [("metadata.resourceVersion", "FieldValueInvalid", problem)])
        made.message = f'{resource.full_name} "{name}" is invalid: metadata.resourceVersion: {problem}'
        made.details = {**(made.details or {}), "kind": resource.plural}
        raise made
    _check_names(before, metadata)
    for field in _KEPT:
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    metadata["resourceVersion"] = before["resourceVersion"]
    _check_new_finalizers(resource, before, metadata)
    changed = {**new, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    check_metadata(resource, changed)
    return changed


def _check_names(before: Json, metadata: Json) -> None:
    for field in ("name", "namespace"):
        if not metadata.get(field) and field in before:
            metadata[field] = before[field]
        if metadata.get(field) != before.get(field):
            raise bad_request(
                f"the {field} of the object ({metadata.get(field)}) does not match the {field} on the URL "
                f"({before.get(field)})"
            )


def next_generation(resource: Resource, old: Json, new: Json) -> Json:
    """Return the object `new`, with the next generation if its spec differs from that of `old`.

    Resources that do not count generations are returned unchanged.
    """
    if not resource.counts_generations or _generated(resource, old) == _generated(resource, new):
        return new
    generation = old["metadata"].get("generation", 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def _generated(resource: Resource, value: Json) -> Any:
    """Return the fields of an object whose changes increase its generation.

    These are the spec; for a custom resource, everything except metadata and a status subresource.
    """
    if resource.custom is None:
        return value.get("spec")
    ignored = ("metadata", "status") if resource.status_subresource else ("metadata",)
    return {field: part for field, part in value.items() if field not in ignored}
