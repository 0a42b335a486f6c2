"""Parses requests for resources: verb, resource, namespace, name, subresource.

Source: apiserver, pkg/endpoints/request/requestinfo.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from .resources import Resource
from .selectors import field_terms
from .users import User

_VERBS: Final = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
_TRUE: Final = ("true", "1", "t")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed request for a resource, with the user who made it.

    `verb`: the Kubernetes verb, such as ``list``. `rest`: for the subresource ``proxy``, the rest of the
    path. `query`: the query parameters.
    """

    verb: str
    resource: Resource
    user: User
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    query: Mapping[str, str] = {}

    def is_set(self, parameter: str) -> bool:
        """Return True if the query has this parameter with the value true, 1 or t."""
        return self.query.get(parameter, "").lower() in _TRUE


Find = Callable[[str, str, str], Resource | None]
"""Type of a function that looks up a resource by group, version and plural name; None if it is not served."""


def parse(method: str, path: str, query: Mapping[str, str], user: User, find: Find) -> Asked | None:
    """Parse a request; returns None if its path does not name a served resource.

    `find`: looks up a resource by group, version and plural.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, tail = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, tail = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if tail[0] == "namespaces" and len(tail) > 2 and tail[2] not in ("status", "finalize"):
        namespace, tail = tail[1], tail[2:]
    of = find(group, version, tail[0])
    if of is None or (namespace and not of.namespaced):
        return None
    name, subresource = ([*tail[1:3], "", ""])[:2]
    rest = "/".join(tail[3:])
    if name and of.namespaced and not namespace:
        return None
    if subresource and subresource not in of.subresources:
        return None
    return Asked(
        verb=_verb(method, name, query),
        resource=of,
        user=user,
        namespace=namespace,
        name=name or _single_name(method, query),
        subresource=subresource,
        rest=rest,
        query=query,
    )


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    verb = _VERBS.get(method, "")
    if verb == "get" and not name:
        return "watch" if query.get("watch", "").lower() in _TRUE else "list"
    return "deletecollection" if verb == "delete" and not name else verb


def _single_name(method: str, query: Mapping[str, str]) -> str:
    """Return the name that the field selector of a LIST or WATCH demands for metadata.name; else empty.

    Authorizers treat it as the name in the request.
    """
    if method != "GET" or not query.get("fieldSelector"):
        return ""
    terms = field_terms(query["fieldSelector"])
    return next((value for field, equal, value in terms if field == "metadata.name" and equal), "")
