"""Syntax of ``--container-runtime-endpoint`` and ``--image-service-endpoint`` (DECISIONS 1, 2).

    ENDPOINTS := ITEM (";" ITEM)*        the flag may also be repeated; items are numbered over all of them
    ITEM      := TYPE ":" NAME ":" URL   the design's form; URL may hold further colons
               | NAME "," TYPE "," URL   the form Arktos used; has a comma before the first colon
               | URL | PATH              bare, as in the kubelet: the only item; name "default", type "container"

A semicolon inside a URL is written ``%3B``. The URL parameters ``plugin=KIND`` and ``isolation=process`` are for the
agent; every other parameter must be declared by the plugin kind. An image endpoint uses the same forms and belongs to
the runtime of that name; a bare one belongs to the only runtime, or to ``default``.

Everything here is pure, and all wrong items are reported in one message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from kubeletx.api import CONTAINER, Endpoint, InvalidConfig, RuntimeName

from . import urls
from .failed_plugins import PluginMissing
from .kinds import UNRESOLVED, KindTable
from .problems import raise_all

RUNTIME_FLAG = "--container-runtime-endpoint"
IMAGE_FLAG = "--image-service-endpoint"
DEFAULT_NAME = "default"
LONGEST_NAME = 30

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_FORM = "TYPE:NAME:URL, such as container:containerd:unix:///run/containerd/containerd.sock"


class EndpointItem(NamedTuple):
    """One item of an endpoint flag, split into its parts.

    `field`: description of the item for messages. `workload_type` and `name` are empty for a bare URL or path.
    """

    field: str
    workload_type: str
    name: str
    url: str


def parse_endpoints(
    runtime_flags: Sequence[str],
    image_flags: Sequence[str],
    kinds: KindTable,
    origin: str = "flag",
    *,
    places: Sequence[str] = (),
    image_places: Sequence[str] = (),
) -> tuple[Endpoint, ...]:
    """Parse the values of the endpoint flags, and return the endpoints in the order written; empty without flags.

    `runtime_flags`, `image_flags`: one text for each use of the flag. `origin`: stored as `Endpoint.origin`. `places`,
    `image_places`: where each text was written, such as a file and its field; empty or missing means on the command
    line. Raises InvalidConfig that names each wrong item by its place or by its number, with the problem and the fix.
    """
    errors: list[InvalidConfig] = []
    items = _items(runtime_flags, places, RUNTIME_FLAG, errors)
    endpoints: dict[str, Endpoint] = {}
    for item in items:
        try:
            endpoint = make_endpoint(item, kinds, origin, alone=len(items) == 1)
            if endpoint.name in endpoints:
                raise InvalidConfig(
                    field=item.field,
                    problem=f"the name {endpoint.name!r} is used by an earlier item",
                    fix="give each runtime its own name",
                )
            endpoints[endpoint.name] = endpoint
        except InvalidConfig as error:
            errors.append(error)
    image_items = _items(image_flags, image_places, IMAGE_FLAG, errors)
    images = _image_urls(image_items, endpoints, errors, complete=not errors)
    raise_all(errors)
    return tuple(msgspec.structs.replace(e, image_url=images.get(e.name)) for e in endpoints.values())


def make_endpoint(item: EndpointItem, kinds: KindTable, origin: str, *, alone: bool = False) -> Endpoint:
    """Check one item, find its plugin kind and return its endpoint.

    `alone`: True if it is the only item, which may be a bare URL or path. If an installed plugin that is not loaded may
    serve the item, the endpoint's kind is the one that the item names, else `UNRESOLVED`. Raises InvalidConfig.
    """
    name, workload_type = item.name, item.workload_type
    if not name:
        if not alone:
            raise InvalidConfig(
                field=item.field,
                problem=f"the bare URL {item.url!r} must be the only item",
                fix=f"write {_FORM}",
            )
        name, workload_type = DEFAULT_NAME, CONTAINER
    else:
        check_name(name, item.field)
    if workload_type not in kinds.workload_types() and not kinds.may_lack_types:
        raise InvalidConfig(
            field=item.field,
            problem=f"unknown workload type {workload_type!r}",
            fix=f"known types: {', '.join(kinds.workload_types())}",
        )
    parts = urls.split(urls.normal(item.url, item.field), item.field)
    try:
        kind = kinds.resolve(
            name=name, workload_type=workload_type, url=parts.url, wanted=parts.plugin, field=item.field
        )
        kinds.check_parameters(kind, parts.names, item.field)
        kind_name = kind.name
    except PluginMissing:
        kind_name = parts.plugin or UNRESOLVED
    return Endpoint(
        name=RuntimeName(name),
        workload_type=workload_type,
        url=parts.url,
        kind=kind_name,
        isolation=parts.isolation,
        origin=origin,
    )


def check_name(name: str, field: str, *, taken: Collection[str] = ()) -> None:
    """Raise InvalidConfig if `name` is not a valid runtime name, is the reserved name, or is in `taken`.

    `field`: where the name was written, for messages.
    """
    if name == DEFAULT_NAME:
        raise InvalidConfig(
            field=field,
            problem=f"the name {DEFAULT_NAME!r} is reserved",
            fix="choose another name; the first runtime of a type is that type's default",
        )
    if not is_name(name):
        raise InvalidConfig(
            field=field,
            problem=f"bad runtime name {name!r}",
            fix=f"use at most {LONGEST_NAME} lower-case letters, digits and single hyphens, such as containerd-2",
        )
    if name in taken:
        raise InvalidConfig(
            field=field, problem=f"the name {name!r} is taken", fix="give each runtime its own name"
        )


def is_name(name: str) -> bool:
    """Return True if `name` is valid for a runtime: a DNS label of at most 30 characters without ``--``."""
    return len(name) <= LONGEST_NAME and _LABEL.fullmatch(name) is not None and "--" not in name


def split_item(text: str, field: str) -> EndpointItem:
    """Split the text of one item into type, name and URL; a bare URL or path has only the URL.

    `field`: description of the item for messages. Raises InvalidConfig.
    """
    if urls.is_bare(text):
        return EndpointItem(field, "", "", text)
    head = text.partition(":")[0]
    if "," in head:
        fields = text.split(",")
        if len(fields) == 3:
            name, workload_type, url = (part.strip() for part in fields)
            return _complete(EndpointItem(field, workload_type, name, url), text)
    else:
        fields = text.split(":", 2)
        if len(fields) == 3:
            workload_type, name, url = (part.strip() for part in fields)
            return _complete(EndpointItem(field, workload_type, name, url), text)
    raise InvalidConfig(
        field=field,
        problem=f"{text!r} has {len(fields)} field{'s' if len(fields) > 1 else ''} instead of 3",
        fix=f"write {_FORM}",
    )


def format_endpoints(endpoints: Sequence[Endpoint]) -> tuple[str, str]:
    """Format `endpoints` as values of the runtime flag and the image flag; parsing is the inverse."""
    runtime, images = [], []
    for endpoint in endpoints:
        kind = "" if endpoint.kind == UNRESOLVED else endpoint.kind
        url = urls.join(endpoint.url, plugin=kind, isolation=endpoint.isolation)
        image_url = urls.join(endpoint.image_url) if endpoint.image_url is not None else None
        if endpoint.name == DEFAULT_NAME:
            return url, image_url or ""
        runtime.append(f"{endpoint.workload_type}:{endpoint.name}:{url}")
        if image_url is not None:
            images.append(f"{endpoint.workload_type}:{endpoint.name}:{image_url}")
    return ";".join(runtime), ";".join(images)


def _complete(item: EndpointItem, text: str) -> EndpointItem:
    for word, value in (("workload type", item.workload_type), ("name", item.name), ("URL", item.url)):
        if not value:
            raise InvalidConfig(
                field=item.field, problem=f"the {word} in {text!r} is empty", fix=f"write {_FORM}"
            )
    return item


def _items(
    flags: Sequence[str], places: Sequence[str], flag: str, errors: list[InvalidConfig]
) -> list[EndpointItem]:
    items: list[EndpointItem] = []
    number = 0
    for value, place in itertools.zip_longest(flags, places[: len(flags)], fillvalue=""):
        if not value.strip():
            continue
        texts = value.split(";")
        for index, text in enumerate(texts, 1):
            number += 1
            field = f"{flag} item {number}"
            if place:
                field = f"{place} item {index}" if len(texts) > 1 else place
            try:
                if not text.strip():
                    raise InvalidConfig(
                        field=field, problem="the item is empty", fix="remove the extra semicolon"
                    )
                items.append(split_item(text.strip(), field))
            except InvalidConfig as error:
                errors.append(error)
    return items


def _image_urls(
    items: list[EndpointItem], endpoints: dict[str, Endpoint], errors: list[InvalidConfig], *, complete: bool
) -> dict[str, str]:
    """Return the image URLs by runtime name; errors are appended to `errors`.

    `complete`: False if some runtime items are invalid; then an unknown runtime name is not an error.
    """
    by_name: dict[str, str] = {}
    for item in items:
        try:
            name = item.name or _only_runtime(item, endpoints)
            if name not in endpoints:
                if not complete:
                    continue
                known = ", ".join(endpoints) or "none"
                raise InvalidConfig(
                    field=item.field,
                    problem=f"image endpoint for the unknown runtime {name!r}",
                    fix=f"name one of the runtimes: {known}",
                )
            if item.workload_type and item.workload_type != endpoints[name].workload_type:
                raise InvalidConfig(
                    field=item.field,
                    problem=f"runtime {name!r} is of type {endpoints[name].workload_type}, "
                    f"not {item.workload_type}",
                    fix="correct the type",
                )
            if name in by_name:
                raise InvalidConfig(
                    field=item.field, problem=f"a second image endpoint for runtime {name!r}", fix="keep one"
                )
            parts = urls.split(urls.normal(item.url, item.field), item.field)
            if parts.plugin or parts.isolation:
                raise InvalidConfig(
                    field=item.field,
                    problem="plugin= and isolation= have no meaning in an image endpoint",
                    fix=f"write them in {RUNTIME_FLAG}",
                )
            by_name[name] = parts.url
        except InvalidConfig as error:
            errors.append(error)
    return by_name


def _only_runtime(item: EndpointItem, endpoints: dict[str, Endpoint]) -> str:
    if DEFAULT_NAME in endpoints or not endpoints:
        return DEFAULT_NAME
    if len(endpoints) == 1:
        return next(iter(endpoints))
    raise InvalidConfig(
        field=item.field,
        problem=f"the bare URL {item.url!r} does not say which of {len(endpoints)} runtimes it is for",
        fix="write TYPE:NAME:URL with the runtime's name",
    )
