"""Drop-in files under the agent's root directory, which store runtimes that were added, removed or cordoned.

    runtimes.d/50-kvm.json          one added runtime; the agent writes JSON, operators may also write YAML
    runtimes.d/containerd.removed   a runtime of the flags that was removed; the flag's item is skipped
    cordons/containerd              an empty file: no new pods on this runtime

Files are read in the order of their names. An unusable file is reported and does not affect the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import Endpoint, InvalidConfig, Unavailable
from kubeletx.kube.text.yaml import parse_documents
from kubeletx.linux.files import remove_file, replace_file

from .grammar import EndpointItem, check_name, is_name, make_endpoint
from .kinds import KindTable
from .urls import join, normal

_SUFFIXES = (".json", ".yaml", ".yml")
_REMOVED = ".removed"
_LARGEST = 64 * 1024


class DropIn(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Content of one file in runtimes.d: an added runtime.

    `url`: URL of the endpoint as in the endpoint flag; it may contain ``plugin=`` and ``isolation=``. `image_url`: URL
    of a separate image endpoint; None if `url` also serves images.
    """

    name: str
    workload_type: str
    url: str
    image_url: str | None = None


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Content of all drop-in files.

    `endpoints`: the added runtimes. `removed`, `cordoned`: names of runtimes. `errors`: one for each unusable file.
    """

    endpoints: tuple[Endpoint, ...] = ()
    removed: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()
    errors: tuple[InvalidConfig, ...] = ()


class DropIns:
    """Reads and writes the drop-in files below `root`, the agent's root directory. All methods block briefly."""

    def __init__(self, root: Path) -> None:
        self.runtimes = root / "runtimes.d"
        self.cordons = root / "cordons"

    def load(self, kinds: KindTable, taken: Collection[str] = ()) -> Loaded:
        """Read all drop-in files.

        `kinds`: the plugin kinds that endpoints may use. `taken`: names of the runtimes of flags and configuration. A
        file that uses one of these names again is an error, unless that runtime was removed.
        """
        removed = frozenset(
            path.name.removesuffix(_REMOVED) for path in _files(self.runtimes) if path.name.endswith(_REMOVED)
        )
        used = {name for name in taken if name not in removed}
        endpoints: list[Endpoint] = []
        errors: list[InvalidConfig] = []
        for path in _files(self.runtimes):
            if path.suffix not in _SUFFIXES:
                continue
            try:
                endpoint = _read(path, kinds, used)
            except InvalidConfig as error:
                errors.append(error)
                continue
            used.add(endpoint.name)
            endpoints.append(endpoint)
        return Loaded(
            endpoints=tuple(endpoints),
            removed=removed,
            cordoned=frozenset(path.name for path in _files(self.cordons) if is_name(path.name)),
            errors=tuple(errors),
        )

    def add(self, endpoint: Endpoint) -> Path:
        """Store an added runtime in a file and return the file's path. Raises Unavailable if it cannot be written."""
        path = self.runtimes / f"50-{endpoint.name}.json"
        drop_in = DropIn(
            name=endpoint.name,
            workload_type=endpoint.workload_type,
            url=join(endpoint.url, plugin=endpoint.kind, isolation=endpoint.isolation),
            image_url=endpoint.image_url,
        )
        with _writing(path):
            replace_file(path, msgspec.json.format(msgspec.json.encode(drop_in), indent=2) + b"\n")
        return path

    def unmask(self, name: str) -> None:
        """Delete ``<name>.removed``, so that the runtime of this name in the flags is used again."""
        path = self.runtimes / f"{name}{_REMOVED}"
        with _writing(path):
            remove_file(path)

    def remove(self, endpoint: Endpoint) -> None:
        """Store the removal of a runtime.

        If the runtime comes from a drop-in file, the file is deleted; otherwise ``<name>.removed`` is written.
        """
        origin = Path(endpoint.origin)
        is_ours = origin.parent == self.runtimes
        path = origin if is_ours else self.runtimes / f"{endpoint.name}{_REMOVED}"
        with _writing(path):
            if is_ours:
                remove_file(path)
            else:
                replace_file(path, b"")

    def cordon(self, name: str, cordoned: bool) -> None:
        """Write the file that marks the runtime `name` as cordoned, or delete that file if `cordoned` is False."""
        path = self.cordons / name
        with _writing(path):
            if cordoned:
                replace_file(path, b"")
            else:
                remove_file(path)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror}; free space there or make it writable, then try again"
        ) from error


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(p for p in directory.iterdir() if not p.name.startswith(".") and p.is_file())
    except OSError:
        return []


def _read(path: Path, kinds: KindTable, used: Collection[str]) -> Endpoint:
    data = _decode(path)
    field = f"{path}: name"
    check_name(data.name, field, taken=used)
    item = EndpointItem(f"{path}: url", data.workload_type, data.name, data.url)
    endpoint = make_endpoint(item, kinds, str(path))
    if data.image_url is None:
        return endpoint
    return msgspec.structs.replace(endpoint, image_url=normal(data.image_url, f"{path}: imageUrl"))


def _decode(path: Path) -> DropIn:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"larger than {_LARGEST} bytes")
        return msgspec.convert(_parse(path, text), DropIn)
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            obj=str(path),
            field="drop-in",
            problem=str(error).replace("\n", " "),
            fix="write name, workloadType and url, or remove the file",
        ) from error


def _parse(path: Path, text: bytes) -> Any:
    if path.suffix == ".json":
        try:
            return msgspec.json.decode(text)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
    documents = parse_documents(text.decode())
    if len(documents) != 1:
        raise ValueError(f"{len(documents)} documents instead of one")
    return documents[0]
