"""Custom resources: pruning, defaults and validation by the schema of their definition.

Source: apiextensions-apiserver, pkg/registry/customresource/{strategy,status_strategy}.go.
"""

from __future__ import annotations

from .errors import Json, bad_request, invalid
from .resources import Resource
from .schemas import defaulted, pruned, wrong_values


def new_custom(of: Resource, made: Json) -> Json:
    """Return a new object, pruned and with defaults.

    The status is dropped if the resource has a status subresource. Raises StatusError 422 if the object
    breaks the schema.
    """
    if of.status_subresource:
        made = {field: part for field, part in made.items() if field != "status"}
    return _checked(of, made)


def change_custom(of: Resource, old: Json, new: Json) -> Json:
    """Return the object to store when `old` is changed to `new` through the main resource.

    If the resource has a status subresource, the status of `old` is kept. Raises StatusError 422 if the
    object breaks the schema.
    """
    if of.status_subresource:
        new = {field: part for field, part in new.items() if field != "status"}
        new |= {"status": old["status"]} if "status" in old else {}
    return _checked(of, new)


def change_custom_status(of: Resource, old: Json, new: Json) -> Json:
    """Return the object to store when the status of `old` is changed: `old` with the status of `new`.

    Raises StatusError 422 if the object breaks the schema.
    """
    version = {"resourceVersion": new["metadata"]["resourceVersion"]}
    made = {**old, "metadata": {**old["metadata"], **version}}
    made.pop("status", None)
    return _checked(of, {**made, "status": new["status"]} if "status" in new else made)


def check_head(of: Resource, body: Json) -> None:
    """Raise StatusError 400 if the object lacks kind or apiVersion.

    Built-in resources have defaults for these two fields; custom resources do not.
    """
    if not body.get("kind") or not body.get("apiVersion"):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {of.kind}): couldn't get version/kind"
        )


def _checked(of: Resource, made: Json) -> Json:
    schema = ((of.custom or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    complete: Json = defaulted(pruned(made, schema), schema)
    if causes := list(wrong_values(complete, schema)):
        raise invalid(of, made["metadata"]["name"], causes)
    return complete
