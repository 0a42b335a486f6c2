"""LIST requests: selectors, pages, and the state that the list shows.

Without a resourceVersion, or with ``"0"``, a list shows the current state. With a version and
resourceVersionMatch=Exact, with a version and a limit, or in a continued list, it shows the state at that
version. If this state is no longer in the history, the answer is 410. With any other version, the list shows
the current state. A version newer than the server's is refused with 504. Items have no kind and no
apiVersion. Source: apiserver, pkg/endpoints/handlers/get.go, pkg/storage/etcd3/store.go,
pkg/storage/continue.go.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

import msgspec

from .errors import Json, StatusError, bad_request, continue_expired, expired, too_large_version
from .requests import Asked
from .selectors import Matcher, field_matcher, label_matcher
from .store import Store, Stored

_CONTINUE_VERSION: Final = "meta.k8s.io/v1"


def matcher_of(asked: Asked) -> Callable[[Json], bool] | None:
    """Return a function that tests an object against the request's label and field selectors.

    Returns None if the request has no selectors. Raises StatusError 400 for an invalid selector.
    """
    tests: list[Matcher] = [
        test
        for test in (
            label_matcher(asked.query.get("labelSelector", "")),
            field_matcher(asked.resource, asked.query.get("fieldSelector", "")),
        )
        if test is not None
    ]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def version_of(asked: Asked) -> int:
    """Return the resourceVersion of the query as a number; 0 if the query has none.

    Raises StatusError 400 if it is not a number.
    """
    text = asked.query.get("resourceVersion", "")
    if text and not text.isdecimal():
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing '
            f'"{text}": invalid syntax'
        )
    return int(text or 0)


def list_objects(asked: Asked, store: Store) -> bytes:
    """Return the list object that a LIST request gets, as JSON. Raises StatusError if the request is refused."""
    matches = matcher_of(asked)
    limit = int(asked.query.get("limit") or 0)
    if asked.query.get("resourceVersion") == "0":  # a real server uses its watch cache, without pages
        limit = 0
    token = asked.query.get("continue", "")
    start, revision = _continued(token, asked, store) if token else ("", _revision(asked, store))
    objects = _at(asked, store, revision, bool(token))
    selected = [stored for stored in objects if matches is None or matches(stored.value)]
    rest = [stored for stored in selected if _position(stored) > start] if start else selected
    page = rest[:limit] if limit else rest
    metadata: Json = {"resourceVersion": str(revision)}
    if len(page) < len(rest):
        metadata["continue"] = _token(revision, page[-1])
        if matches is None:
            metadata["remainingItemCount"] = len(rest) - len(page)
    head = {
        "kind": f"{asked.resource.kind}List",
        "apiVersion": asked.resource.api_version,
        "metadata": metadata,
    }
    items = b",".join(stored.bare for stored in page)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _revision(asked: Asked, store: Store) -> int:
    version, match = version_of(asked), asked.query.get("resourceVersionMatch", "")
    if match and not asked.query.get("resourceVersion"):
        raise _bad_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and not version:
        raise _bad_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if version > store.revision:
        raise too_large_version(version, store.revision)
    exact = match == "Exact" or (not match and version and asked.query.get("limit"))
    return version if exact else store.revision


def _bad_match(problem: str) -> StatusError:
    message = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {problem}'
    return StatusError(422, "Invalid", message, {"group": "meta.k8s.io", "kind": "ListOptions"})


def _at(asked: Asked, store: Store, revision: int, continued: bool) -> list[Stored]:
    if revision == store.revision:
        return list(store.all(asked.resource, asked.namespace))
    objects = store.all_at(asked.resource, revision, asked.namespace)
    if objects is None:
        raise continue_expired() if continued else expired(revision, store.forgotten)
    return objects


def _position(stored: Stored) -> str:
    metadata = stored.value["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _token(revision: int, last: Stored) -> str:
    content = {"v": _CONTINUE_VERSION, "rv": revision, "start": _position(last)}
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def _continued(token: str, asked: Asked, store: Store) -> tuple[str, int]:
    if asked.query.get("resourceVersion"):
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        content = json.loads(base64.urlsafe_b64decode(token))
        start, revision = str(content["start"]), int(content["rv"])
    except (ValueError, KeyError, TypeError) as err:
        raise bad_request(f"invalid continue token: continue key is not valid: {err}") from err
    if revision > store.revision:
        raise continue_expired()
    return start, revision
