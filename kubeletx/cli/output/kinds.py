"""The kinds of objects that ``get`` supports: how each is fetched, watched, named, selected and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from ..connection.client import AgentClient
from ..connection.pods import BriefPod
from . import columns, object_kinds
from .printers import Column
from .selectors import parse_selector, select
from .words import did_you_mean

if TYPE_CHECKING:
    from kubeletx.kube.types.event import Event
    from kubeletx.server.views import ImageView

_POD: Final = "kubeletx.kube.types.core.Pod"
_NODE: Final = "kubeletx.kube.types.node.Node"
_EVENT: Final = "kubeletx.kube.types.event.Event"
_RUNTIME: Final = "kubeletx.server.views.RuntimeView"
_VOLUME: Final = "kubeletx.server.views.VolumeView"
_IMAGES: Final = "kubeletx.server.views.ImageListing"

Watch = Iterator[tuple[str, Any]]
"""Changes of a watch, each as a pair: ADDED, MODIFIED or DELETED, and the object."""


class ObjectKind(NamedTuple):
    """One kind of object, with the functions that fetch, watch and show such objects.

    `short`: short names such as po. `name`, `namespace`, `labels`: return these of an object. `list_header`: apiVersion
    and kind of a list of such objects. `lines`: returns the objects of the lines that show one object in a table.
    """

    singular: str
    plural: str
    short: tuple[str, ...]
    columns: Sequence[Column]
    fetch: Callable[[AgentClient], tuple[Sequence[Any], Sequence[str]]]
    """Returns all objects of the kind, and the names of the runtimes that did not answer."""
    name: Callable[[Any], str]
    list_header: tuple[str, str]
    watch: Callable[[AgentClient], Watch]
    namespaced: bool = False
    namespace: Callable[[Any], str] = lambda _item: ""
    labels: Callable[[Any], Mapping[str, str]] = lambda _item: {}
    lines: Callable[[Any], Sequence[Any]] = lambda item: [item]
    fetch_brief: Callable[[AgentClient], Sequence[Any]] | None = None
    """Returns all objects with the fields that `columns`, `name`, `namespace` and `labels` use, if this is quicker."""

    def selected(self, agent: AgentClient, selector: str, namespace: str | None) -> list[Any]:
        """Return the objects with these labels in a namespace (None: in all), with all fields. Raises InvalidConfig."""
        wanted = parse_selector(selector)
        return [
            item
            for item in self.fetch(agent)[0]
            if not self.namespaced or namespace in (None, self.namespace(item))
            if select(wanted, self.labels(item))
        ]


def _imported(target: str) -> type[Any]:
    """Import a type by its full name: ``get pods`` is quicker without the types of other kinds."""
    module, _, name = target.rpartition(".")
    found: type[Any] = getattr(import_module(module), name)
    return found


def _lister(path: str, target: str) -> Callable[[AgentClient], tuple[Sequence[Any], Sequence[str]]]:
    return lambda agent: (agent.items(path, _imported(target)), ())


def _node(agent: AgentClient) -> tuple[Sequence[Any], Sequence[str]]:
    return (agent.get("/v1/node", _imported(_NODE)),), ()


def _images(agent: AgentClient) -> tuple[Sequence[Any], Sequence[str]]:
    listing = agent.get("/v1/images", _imported(_IMAGES))
    return listing.items, listing.missing


def _watcher(path: str, target: str) -> Callable[[AgentClient], Watch]:
    """Return the watch of a path whose lines are objects."""

    def watch(agent: AgentClient) -> Watch:
        for line in agent.lines("GET", path, {"watch": True}):
            yield line.type, msgspec.json.decode(line.object, type=_imported(target))

    return watch


def _list_watcher(path: str, target: str, key: Callable[[Any], Hashable]) -> Callable[[AgentClient], Watch]:
    """Return the watch of a path whose lines are lists. `key`: identifies an item of them."""

    def lists(agent: AgentClient) -> Iterator[Mapping[Hashable, Any]]:
        for line in agent.lines("GET", path, {"watch": True}):
            items = msgspec.json.decode(line.object, type=tuple[_imported(target), ...])  # type: ignore[misc]  # a variable
            yield {key(item): item for item in items}

    return lambda agent: _differences(lists(agent))


def _image_lists(agent: AgentClient) -> Iterator[Mapping[Hashable, ImageView]]:
    """Yield all images, by store and id, after each change.

    If a store does not answer, the images of its last answer are yielded.
    """
    before: dict[Hashable, ImageView] = {}
    for line in agent.lines("GET", "/v1/images", {"watch": True}):
        listing = msgspec.json.decode(line.object, type=_imported(_IMAGES))
        silent = {key: item for key, item in before.items() if set(item.runtimes) & set(listing.missing)}
        before = {**silent, **{(item.store, item.id): item for item in listing.items}}
        yield before


def _differences(lists: Iterable[Mapping[Hashable, Any]]) -> Watch:
    """Compare each of `lists` with the one before; yields the differences as changes of a watch.

    Each list has the objects by a key that identifies them. All objects of the first list are ADDED.
    """
    before: Mapping[Hashable, Any] = {}
    for present in lists:
        for key, item in present.items():
            if before.get(key) != item:
                yield ("MODIFIED" if key in before else "ADDED"), item
        for key, item in before.items():
            if key not in present:
                yield "DELETED", item
        before = present


def _object(singular: str, short: tuple[str, ...], kind: str, shown: Sequence[Column]) -> ObjectKind:
    """Return the kind of objects that the agent holds for pods without a cluster. A watch lists them each second."""
    path = f"/v1/objects/{kind}"

    def lists(agent: AgentClient) -> Iterator[Mapping[Hashable, Any]]:
        while True:
            items = agent.items(path, dict[str, Any])
            yield {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in items}
            time.sleep(1.0)

    return ObjectKind(
        singular,
        f"{singular}s",
        short,
        shown,
        lambda agent: (agent.items(path, dict[str, Any]), ()),
        lambda item: str(item["metadata"]["name"]),
        ("v1", f"{kind}List"),
        namespaced=True,
        namespace=lambda item: str(item["metadata"]["namespace"]),
        labels=lambda item: dict(item["metadata"].get("labels", {})),
        watch=lambda agent: _differences(lists(agent)),
    )


def _event_namespace(event: Event) -> str:
    """Return the namespace of an event; ``default`` for events about the node and runtimes, as in a cluster."""
    return event.metadata.namespace or event.involved_object.namespace or "default"


def _image_name(image: ImageView) -> str:
    return image.tags[0] if image.tags else image.id


KINDS: Final = (
    ObjectKind(
        "pod",
        "pods",
        ("po",),
        columns.POD,
        _lister("/v1/pods", _POD),
        lambda pod: str(pod.name),
        ("v1", "PodList"),
        namespaced=True,
        namespace=lambda pod: str(pod.namespace),
        labels=lambda pod: dict(pod.metadata.labels),
        watch=_watcher("/v1/pods", _POD),
        fetch_brief=lambda agent: agent.items("/v1/pods", BriefPod),
    ),
    ObjectKind(
        "runtime",
        "runtimes",
        ("rt",),
        columns.RUNTIME,
        _lister("/v1/runtimes", _RUNTIME),
        lambda item: str(item.name),
        ("kubeletx.io/v1", "RuntimeList"),
        watch=_list_watcher("/v1/runtimes", _RUNTIME, lambda item: item.name),
    ),
    ObjectKind(
        "node",
        "nodes",
        ("no",),
        columns.NODE,
        _node,
        lambda node: str(node.metadata.name),
        ("v1", "NodeList"),
        labels=lambda node: dict(node.metadata.labels),
        watch=_watcher("/v1/node", _NODE),
    ),
    ObjectKind(
        "image",
        "images",
        ("img",),
        columns.IMAGE,
        _images,
        _image_name,
        ("kubeletx.io/v1", "ImageList"),
        watch=lambda agent: _differences(_image_lists(agent)),
        lines=columns.tagged,
    ),
    ObjectKind(
        "volume",
        "volumes",
        ("vol",),
        columns.VOLUME,
        _lister("/v1/volumes", _VOLUME),
        columns.volume_name,
        ("kubeletx.io/v1", "VolumeList"),
        namespaced=True,
        namespace=lambda item: str(item.namespace),
        watch=_list_watcher("/v1/volumes", _VOLUME, lambda item: (item.pod_uid, item.name)),
    ),
    ObjectKind(
        "event",
        "events",
        ("ev",),
        columns.EVENT,
        _lister("/v1/events", _EVENT),
        lambda event: str(event.metadata.name),
        ("v1", "EventList"),
        namespaced=True,
        namespace=_event_namespace,
        watch=_watcher("/v1/events", _EVENT),
    ),
    _object("configmap", ("cm",), "ConfigMap", object_kinds.CONFIG_MAP),
    _object("secret", (), "Secret", object_kinds.SECRET),
    _object("persistentvolumeclaim", ("pvc",), "PersistentVolumeClaim", object_kinds.CLAIM),
)

OBJECTS: Final = {kind.singular: kind.list_header[1].removesuffix("List") for kind in KINDS[-3:]}
"""Kinds of objects that the agent holds for pods without a cluster: singular → kind in the API."""
OBJECT_PLURALS: Final = tuple(f"{word}s" for word in OBJECTS)

_BY_WORD: Final = {word: kind for kind in KINDS for word in (kind.singular, kind.plural, *kind.short)}


def kind_of(word: str) -> ObjectKind:
    """Return the kind with the singular, plural or short name `word`.

    Raises UsageError, with a suggestion, for an unknown name.
    """
    kind = _BY_WORD.get(word.lower())
    if kind is None:
        known = ", ".join(kind.plural for kind in KINDS)
        raise click.UsageError(f"unknown kind {word!r}{did_you_mean(word, list(_BY_WORD))} (known: {known})")
    return kind


def kinds_and_names(words: tuple[str, ...]) -> list[tuple[ObjectKind, tuple[str, ...]]]:
    """Parse the arguments that name objects; returns each kind in order, with the names of its objects.

    No names mean all objects of the kind. Arguments have one of the forms ``pods``, ``pod a b``, ``pods,runtimes``,
    ``pod/a`` and ``pod/a runtime/b``. Raises UsageError for others.
    """
    if not words[0].strip():
        raise click.UsageError("name a kind, such as pods")
    if "/" not in words[0]:
        for word in words[1:]:
            before = word.partition("/")[0]
            if before != word and before.lower() in _BY_WORD and kind_of(words[0]).plural != "images":
                raise click.UsageError(f"{word!r} has a kind of its own; leave out {words[0]!r}")
        return [(kind_of(word), words[1:]) for word in words[0].split(",") if word]
    wanted: dict[str, tuple[str, ...]] = {}
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not name:
            raise click.UsageError(
                f"{word!r} is not KIND/NAME like {words[0]!r}; write every object as KIND/NAME"
            )
        plural = kind_of(kind).plural
        wanted[plural] = (*wanted.get(plural, ()), name)
    return [(kind_of(plural), names) for plural, names in wanted.items()]
