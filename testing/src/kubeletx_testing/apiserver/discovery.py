"""Discovery documents of the API server double: server version, API groups, resources.

Source: apiserver, pkg/endpoints/discovery.
"""

from __future__ import annotations

from typing import Final

from .catalog import Catalog
from .errors import Json
from .resources import READ_WRITE, Resource

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-double",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def discover(path: str, catalog: Catalog) -> Json | None:
    """Return the document at a discovery path such as ``/apis``; None for a path that is not served."""
    named = catalog.group_versions()
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            found = [_group(*one) for one in named.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        case ["api", "v1"]:
            return _resources("", "v1", catalog)
        case ["apis", group] if group in named:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, named[group])}
        case ["apis", group, version] if named.get(group) == version:
            return _resources(group, f"{group}/{version}", catalog)
        case _:
            return None


def _group(name: str, version: str) -> Json:
    made = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [made], "preferredVersion": made}


def _resources(group: str, group_version: str, catalog: Catalog) -> Json:
    found = [entry for one in catalog.all() if one.group == group for entry in _entries(one)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": found,
    }


def _entries(of: Resource) -> list[Json]:
    main: Json = {
        "name": of.plural,
        "singularName": of.kind.lower(),
        "namespaced": of.namespaced,
        "kind": of.kind,
        "verbs": list(READ_WRITE) if of.stored else ["create"],
    }
    if of.short_names:
        main["shortNames"] = list(of.short_names)
    if of.plural == "pods":
        main["categories"] = ["all"]
    return [
        main,
        *(
            {
                "name": f"{of.plural}/{name}",
                "singularName": "",
                "namespaced": of.namespaced,
                "kind": kind,
                "verbs": _verbs(name),
            }
            for name, kind in of.subresources.items()
        ),
    ]


def _verbs(subresource: str) -> list[str]:
    if subresource in ("binding", "eviction", "token"):
        return ["create"]
    if subresource == "log":
        return ["get"]
    return (
        ["create", "get"]
        if subresource in ("attach", "exec", "portforward", "proxy")
        else ["get", "patch", "update"]
    )
