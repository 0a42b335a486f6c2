"""Authorization of requests to the API server double.

The group system:masters may do everything. Nodes may do what the Node authorizer allows. Other users may do
what the test has granted with `Grant`.

Source: kubernetes, pkg/registry/rbac; for the messages apiserver, pkg/endpoints/handlers/responsewriters
ForbiddenStatusError.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .catalog import Catalog
from .errors import Json, StatusError
from .node_authorizer import node_problem
from .requests import Asked
from .resources import Resource, resource
from .store import Store
from .users import AUTHENTICATED, MASTERS, User

_ANY: Final = "*"
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_DISCOVERY: Final = ("/api", "/apis", "/openapi")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A right that a test grants to a user or group, like a rule of RBAC; ``*`` matches everything.

    `subject`: name of the user or group. `resources`: plural names; a subresource is written
    ``PLURAL/SUBRESOURCE``, such as ``pods/log``. `groups`: API groups of the resources. `names`: names of
    objects; a right with names does not hold for requests without one, such as create and list.
    """

    subject: str
    verbs: tuple[str, ...] = (_ANY,)
    resources: tuple[str, ...] = (_ANY,)
    namespaces: tuple[str, ...] = (_ANY,)
    groups: tuple[str, ...] = (_ANY,)
    names: tuple[str, ...] = (_ANY,)


BOOTSTRAP: Final = (
    Grant(
        subject="system:bootstrappers",
        verbs=("create", "get", "list", "watch"),
        resources=("certificatesigningrequests",),
    ),
    Grant(
        subject=AUTHENTICATED,
        verbs=("create",),
        resources=("selfsubjectaccessreviews",),
    ),
)
"""Grants that every cluster made by kubeadm has."""


class Authorizer:
    """Decides what users of one cluster may do.

    `grants`: the rights granted so far; a test may append to this list at any time.
    """

    def __init__(self, store: Store) -> None:
        self.grants: list[Grant] = list(BOOTSTRAP)
        self._store = store
        self._catalog = Catalog(store)

    def problem(self, asked: Asked) -> str | None:
        """Return None if the request is allowed, else the reason for the refusal.

        The reason is empty if the real server's message gives none.
        """
        if MASTERS in asked.user.groups or self._is_granted(asked):
            return None
        return node_problem(asked, self._store) if asked.user.node_name else ""

    def check(self, asked: Asked) -> None:
        """Raise StatusError 403 if the user may not make this request."""
        reason = self.problem(asked)
        if reason is not None:
            raise refusal(asked, reason)

    def check_path(self, user: User, verb: str, path: str) -> None:
        """Raise StatusError 403 if the user may not use a path that is not a resource, such as ``/healthz``."""
        signed_in = AUTHENTICATED in user.groups
        if MASTERS in user.groups or path.startswith(_PUBLIC) or (signed_in and path.startswith(_DISCOVERY)):
            return
        raise StatusError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', {})

    def review(self, user: User, attributes: Json) -> tuple[bool, str]:
        """Decide about the resource attributes of a SubjectAccessReview.

        Returns (allowed, reason); the reason is empty if the request is allowed.
        """
        plural, group = attributes.get("resource") or _ANY, attributes.get("group") or ""
        asked = Asked(
            verb=attributes.get("verb") or "",
            resource=self._catalog.find(group, attributes.get("version") or "v1", plural)
            or _stranger(plural, group),
            user=user,
            namespace=attributes.get("namespace") or "",
            name=attributes.get("name") or "",
            subresource=attributes.get("subresource") or "",
        )
        reason = self.problem(asked)
        return reason is None, reason or ""

    def _is_granted(self, asked: Asked) -> bool:
        what = asked.resource.plural + (f"/{asked.subresource}" if asked.subresource else "")
        subjects = {asked.user.name, *asked.user.groups}
        return any(
            grant.subject in subjects
            and (_ANY in grant.verbs or asked.verb in grant.verbs)
            and (_ANY in grant.resources or what in grant.resources)
            and (_ANY in grant.namespaces or asked.namespace in grant.namespaces)
            and (_ANY in grant.groups or asked.resource.group in grant.groups)
            and (_ANY in grant.names or (asked.verb != "create" and asked.name in grant.names))
            for grant in self.grants
        )


def _stranger(plural: str, group: str) -> Resource:
    return msgspec.structs.replace(resource("configmaps"), plural=plural, kind=plural, group=group)


def refusal(asked: Asked, reason: str) -> StatusError:
    """Return StatusError 403 with the message that a real server sends.

    `asked`: the refused request. `reason`: appended to the message; empty: nothing is appended.
    """
    of = asked.resource
    what = of.plural + (f"/{asked.subresource}" if asked.subresource else "")
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    subject = f'{of.full_name} "{asked.name}"' if asked.name else of.full_name
    tail = f": {reason}" if reason else ""
    message = (
        f'{subject} is forbidden: User "{asked.user.name}" cannot {asked.verb} resource "{what}" in API group '
        f'"{of.group}" {scope}{tail}'
    )
    details: Json = {"name": asked.name} if asked.name else {}
    details |= {"group": of.group} if of.group else {}
    return StatusError(403, "Forbidden", message, {**details, "kind": of.plural})
