"""Creates, changes and deletes objects in the store, by the rules of their resources.

Source: apiserver, pkg/registry/generic/registry/store.go and the strategies of pkg/registry/*. Each resource
with special rules has its own file.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any, Final

import msgspec

from . import custom, definitions, deletion, disruption, jobs, nodes, patches, pods, protection, volumes
from .catalog import DEFINITIONS, resource_of
from .csr import approved_by, sign_if_approved, strip_new_request
from .defaults import check_lease, new_service
from .errors import (
    Json,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from .managed_fields import with_managers
from .objects import changed_object, new_object, next_generation
from .pruning import prune
from .resources import Resource, resource
from .settings import Settings
from .store import Key, Store, Stored, key_of
from .typed_fields import event

Admit = Callable[[str, Json | None, Json | None], None]
"""Type of the admission check before a write, such as the one that `node_restriction.restrict` returns.

It is called with CREATE, UPDATE or DELETE, the old object and the new object. It raises StatusError to refuse
the write.
"""

_CREATED_BY_PUT: Final = ("leases", "events")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The object, collection or subresource that a request names."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = ""
    """Name of the client in managedFields; empty for the double's own controllers, which get no entry."""

    @property
    def key(self) -> Key:
        """Key of the object in the store: namespace and name."""
        return self.namespace, self.name


def allow_all(verb: str, old: Json | None, new: Json | None) -> None:
    """Allow every write. It is an `Admit`."""


class Registry:
    """Makes all changes of objects in one store.

    `sign`: signs certificate requests; see `csr.signer`.
    """

    def __init__(self, store: Store, settings: Settings, sign: Callable[[Json], str]) -> None:
        self.store = store
        self.settings = settings
        self._sign = sign
        store.listen(disruption.follower(store, settings))
        store.listen(protection.follower(store, settings))

    def get(self, target: Target) -> Stored:
        """Return the object as stored. Raises StatusError 404 if it does not exist."""
        stored = self.store.find(target.resource, target.key)
        if stored is None:
            raise not_found(target.resource, target.name)
        return stored

    def create(self, target: Target, body: Json, admit: Admit = allow_all, dry_run: bool = False) -> Stored:
        """Create an object and return it as stored.

        `dry_run`: validate the object and return it without storing it. Raises StatusError if the object is
        refused.
        """
        of = target.resource
        self._check_namespace(target)
        made = new_object(of, _pruned(of, body), target.namespace, self.settings)
        if of.custom is not None:
            definitions.check_served(self.store, of, made["metadata"]["name"])
        if self.store.find(of, (target.namespace, made["metadata"]["name"])) is not None:
            admit("CREATE", None, made)
            raise already_exists(of, made["metadata"]["name"])
        made = self._prepared(of, made)
        admit("CREATE", None, made)
        made = with_managers(None, made, target.manager, target.subresource, self.settings.now())
        if dry_run:
            return Stored(made, msgspec.json.encode(made), b"", 0)
        stored = self.store.put(of, made)
        self._after_creation(of, stored)
        return self.get(msgspec.structs.replace(target, name=stored.value["metadata"]["name"]))

    def update(self, target: Target, body: Json, admit: Admit = allow_all) -> tuple[Stored, bool]:
        """Replace an object (PUT).

        Returns the object as stored, and True if it did not exist and was created. Only leases and events can
        be created in this way. Raises StatusError if the object is refused.
        """
        if self.store.find(target.resource, target.key) is None and not target.subresource:
            if target.resource.plural not in _CREATED_BY_PUT:
                raise not_found(target.resource, target.name)
            return self.create(target, body, admit), True
        old = self.get(target)
        new = _pruned(target.resource, body)
        return self._change(target, old, new, admit, is_patch=False), False

    def patch(self, target: Target, body: Any, media_type: str, admit: Admit = allow_all) -> Stored:
        """Apply a patch to an object and return the object as stored.

        `media_type`: format of the patch. Raises StatusError if the patch or the patched object is refused.
        """
        old = self.get(target)
        if media_type == patches.JSON_PATCH:
            patched = patches.json_patch(old.value, body)
        elif not isinstance(body, dict):
            raise bad_request("error decoding patch: the patch is not an object")
        elif media_type == patches.MERGE_PATCH:
            patched = patches.merge_patch(old.value, body)
        elif media_type == patches.STRATEGIC_PATCH and target.resource.custom is None:
            patched = patches.strategic_patch(old.value, body)
        else:
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        try:
            return self._change(target, old, _pruned(target.resource, patched), admit, is_patch=True)
        except StatusError as err:
            if err.code == 400 and media_type == patches.STRATEGIC_PATCH:
                message = f' "" is invalid: patch: Invalid value: {err.message}'
                raise StatusError(422, "Invalid", message, {}) from err
            raise

    def delete(self, target: Target, options: Json, admit: Admit = allow_all) -> tuple[Stored, bool]:
        """Delete an object, or mark it for deletion.

        Returns the object, and True if it is removed or False if it is only marked. Raises StatusError if the
        deletion is refused.
        """
        old = self.get(target)
        deletion.check_preconditions(target.resource, old.value, options)
        admit("DELETE", old.value, None)
        if target.resource == DEFINITIONS:
            return self._delete_definition(target, old)
        marked = deletion.mark_deleted(target.resource, old.value, options, self.settings)
        if marked is None:
            return self._remove(target), True
        if marked is not old.value:
            old = self.store.put(target.resource, marked)
        if not deletion.is_gone(old.value):
            return old, False
        return self._remove(target), True

    def _remove(self, target: Target) -> Stored:
        removed = self.store.remove(target.resource, target.key)
        if target.resource.custom is not None and definitions.is_terminating(self.store, target.resource):
            key = ("", target.resource.full_name)
            if not any(True for _ in self.store.all(target.resource)):
                self.store.remove(DEFINITIONS, key)
        return removed

    def _delete_definition(self, target: Target, old: Stored) -> tuple[Stored, bool]:
        """Delete the objects of a CustomResourceDefinition; with the last of them, also the definition.

        Returns the same as `delete`.
        """
        of = resource_of(old.value)
        old = self.store.put(target.resource, definitions.marked(old.value, self.settings))
        if of is not None:
            for namespace, name in [key_of(stored.value) for stored in self.store.all(of)]:
                self.delete(Target(resource=of, namespace=namespace, name=name), {})
        if self.store.find(target.resource, target.key) is None:  # removed with its last object
            return old, True
        if of is not None and any(True for _ in self.store.all(of)):
            return old, False
        return self.store.remove(target.resource, target.key), True

    def evict(self, target: Target, body: Json, admit: Admit = allow_all) -> None:
        """Delete a pod with the delete options of an Eviction, if the pod's disruption budget allows it.

        Raises StatusError if the eviction is refused.
        """
        pod = self.get(target)
        name = (body.get("metadata") or {}).get("name")
        if name != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        admit("CREATE", pod.value, body)
        options = body.get("deleteOptions") or {}
        self.delete(target, disruption.permit(self.store, self.settings, pod.value, options))

    def bind(self, target: Target, body: Json) -> None:
        """Assign a pod to a node, as a Binding demands.

        Raises StatusError if the pod has a node or is being deleted. Source: kubernetes,
        pkg/registry/core/pod/storage/storage.go BindingREST.
        """
        pod = self.get(target).value
        node = (body.get("target") or {}).get("name")
        if not node:
            raise bad_request("target.name is missing")
        binding = msgspec.structs.replace(target.resource, plural="pods/binding")
        if pod["metadata"].get("deletionTimestamp"):
            problem = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise conflict(binding, target.name, problem)
        current = pod["spec"].get("nodeName")
        if current:
            problem = f'pod {target.name} is already assigned to node "{current}"'
            raise conflict(binding, target.name, problem)
        metadata = body.get("metadata") or {}
        bound = pods.bind_pod(
            pod, node, metadata.get("annotations") or {}, metadata.get("labels") or {}, self.settings
        )
        self.store.put(target.resource, bound)

    def _change(self, target: Target, old: Stored, new: Json, admit: Admit, is_patch: bool) -> Stored:
        of = target.resource
        new = changed_object(of, old.value, new, is_patch)
        new = self._strategy(target, copy.deepcopy(old.value), new)
        new = next_generation(of, old.value, new)
        admit("UPDATE", old.value, new)
        if deletion.is_gone(new) and not deletion.is_gone(old.value):
            self._remove(target)
            return Stored(new, msgspec.json.encode(new), b"", old.revision)
        new = with_managers(old.value, new, target.manager, target.subresource, self.settings.now())
        return self._signed(of, self.store.put(of, new))

    def _strategy(self, target: Target, old: Json, new: Json) -> Json:  # noqa: PLR0912 - one case for each kind
        of = target.resource
        if of.custom is not None:
            change = custom.change_custom_status if target.subresource else custom.change_custom
            return change(of, old, new)
        match of.plural, target.subresource:
            case "customresourcedefinitions", "":
                return definitions.change_definition(old, new)
            case "jobs", "":
                return jobs.change_job(old, new)
            case "jobs", "status":
                return jobs.change_job_status(old, new)
            case "pods", "":
                return pods.change_pod(old, new)
            case "pods", "status":
                return pods.change_pod_status(old, new)
            case "pods", "ephemeralcontainers":
                return pods.change_ephemeral_containers(old, new)
            case "pods", "resize":
                return pods.resize_pod(old, new, self.store)
            case "nodes", "":
                return nodes.change_node(old, new)
            case "nodes", "status":
                return nodes.change_node_status(old, new)
            case "persistentvolumes" | "persistentvolumeclaims", "":
                return volumes.CHANGE[of.plural](old, new)
            case "leases", "":
                return check_lease(new)
            case "events", "":
                return event(new)
            case "certificatesigningrequests", "":
                return {**new, "spec": old["spec"], "status": old.get("status", {})}
            case "certificatesigningrequests", "approval":
                return approved_by(old, new, self.settings)
            case _, "status":
                return {**old, "metadata": new["metadata"], "status": new.get("status") or {}}
            case _ if of.status_subresource:
                return {**new, "status": old.get("status", {})}
            case _:
                return new

    def _prepared(self, of: Resource, made: Json) -> Json:
        if of.custom is not None:
            return custom.new_custom(of, made)
        match of.plural:
            case "customresourcedefinitions":
                return definitions.new_definition(made, self.settings)
            case "jobs":
                return jobs.new_job(made)
            case "poddisruptionbudgets":
                return disruption.new_budget(made)
            case "pods":
                return pods.admit_pod(made, self.store, self.settings)
            case "nodes":
                return nodes.admit_node(made)
            case "namespaces":
                return _new_namespace(made)
            case "certificatesigningrequests":
                return strip_new_request(made, self.settings)
            case "secrets":
                return _new_secret(made)
            case "events":
                return _new_event(made)
            case "services":
                return new_service(made, self.store)
            case "persistentvolumes" | "persistentvolumeclaims":
                return volumes.NEW[of.plural](made)
            case "leases":
                return check_lease(made)
            case _ if of.status_subresource:
                return {**made, "status": {}}
            case _:
                return made

    def _after_creation(self, of: Resource, stored: Stored) -> None:
        self._signed(of, stored)
        if of.full_name == "namespaces" and self.settings.controllers:
            self._fill_namespace(stored.value["metadata"]["name"])

    def _signed(self, of: Resource, stored: Stored) -> Stored:
        if of.plural != "certificatesigningrequests" or not self.settings.controllers:
            return stored
        signed = sign_if_approved(stored.value, self._sign)
        return stored if signed is None else self.store.put(of, signed)

    def _fill_namespace(self, name: str) -> None:
        """Create the service account and the config map that real controllers create in each new namespace."""
        account = Target(resource=resource("serviceaccounts"), namespace=name)
        self.create(account, {"metadata": {"name": "default"}})
        config = Target(resource=resource("configmaps"), namespace=name)
        self.create(config, {"metadata": {"name": pods.ROOT_CA}, "data": {"ca.crt": self._sign({})}})

    def _check_namespace(self, target: Target) -> None:
        namespaces = resource("namespaces")
        if target.namespace and self.store.find(namespaces, ("", target.namespace)) is None:
            raise not_found(namespaces, target.namespace)


def _pruned(of: Resource, body: Any) -> Json:
    """Return the body of a request without the fields that the server does not store.

    Raises StatusError 400 if the body cannot be an object of this resource.
    """
    return prune(_checked(of, body), "" if of.custom is not None else of.kind)


def _checked(of: Resource, body: Any) -> Json:
    """Return the body of a request unchanged if it can be an object of this resource.

    Raises StatusError 400 for a body that is not a JSON object, has another kind or apiVersion, or has
    metadata of a wrong type.
    """
    if not isinstance(body, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {of.kind}): couldn't get version/kind"
        )
    if of.custom is not None:
        custom.check_head(of, body)
    kind, version = body.get("kind") or of.kind, body.get("apiVersion") or of.api_version
    if (kind, version) != (of.kind, of.api_version):
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {of.kind}: unknown conversion'
        )
    metadata = body.get("metadata") or {}
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field) or "", str):
            raise bad_request(
                f'{of.kind} in version "{of.version}" cannot be handled as a {of.kind}: json: cannot unmarshal '
                f"number into Go struct field ObjectMeta.metadata.{field} of type string"
            )
    return body


def _new_namespace(made: Json) -> Json:
    metadata = made["metadata"]
    labels = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}
    spec = {"finalizers": ["kubernetes"]}
    return {**made, "metadata": {**metadata, "labels": labels}, "spec": spec, "status": {"phase": "Active"}}


def _new_event(made: Json) -> Json:
    about, namespace = made.get("involvedObject") or {}, made["metadata"]["namespace"]
    if (about.get("namespace") or "default") != namespace:
        problem = f'Invalid value: "{about.get("namespace", "")}": does not match event.namespace'
        cause = ("involvedObject.namespace", "FieldValueInvalid", problem)
        raise invalid(resource("events"), made["metadata"]["name"], [cause])
    return event(made)


def _new_secret(made: Json) -> Json:
    """Return a new secret in which the entries of stringData are moved to data.

    Source: pkg/apis/core/v1/conversion.go Convert_v1_Secret_To_core_Secret.
    """
    made = {"type": "Opaque", **made}
    texts = made.pop("stringData", None) or {}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return {**made, "data": {**(made.get("data") or {}), **encoded}} if encoded else made
