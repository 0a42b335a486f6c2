"""Sources of the configuration: files of ``--config`` and ConfigMaps of one namespace, read again when they change.

`load_config` is pure: it turns texts and maps into `Configurations`. A document with a problem is not used; its last good version
stays in use until it is corrected or removed. `ConfigSources` reads the files every few seconds and follows the ConfigMaps.

ConfigMaps ``remedy-config`` and ``remedy-config-NAME`` hold Configurations, each key one YAML text. Files may have them too,
beside ConfigMaps of fence configuration and settings, which win over the cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Clock, InvalidConfig
from kubeletx.kube.client import KubeClient, Reflector
from kubeletx.kube.client.resources import CONFIG_MAPS
from kubeletx.kube.text.yaml import YamlError, parse_documents
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import ConfigMap
from kubeletx.linux.files import read_regular

from .config import API_VERSION, Configurations, RemedyConfiguration, read_configuration
from .fence_config import CLUSTER, CONFIG, METHOD
from .fields import ConfigField
from .model import RemedySettings
from .settings import SETTINGS_MAP, read_settings

log = structlog.get_logger(__name__)

MAX_BYTES: Final = 4 << 20
_CONFIG_MAP: Final = "remedy-config"
PAUSE_MAP: Final = "remedy-pause"
"""While this ConfigMap exists, setting `pause` is on. ``kubeletx remedy pause --all`` creates it."""
_LISTS: Final = ("List", "ConfigMapList")


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration as loaded, and the last good version of each source. `documents`: Configurations by name. `raw`: YAML by source."""

    configurations: Configurations = msgspec.field(default_factory=Configurations)
    documents: Mapping[str, RemedyConfiguration] = {}
    raw: Mapping[str, Sequence[Any]] = {}
    file_maps: Mapping[str, Mapping[str, str]] = {}
    problems: tuple[InvalidConfig, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return self.configurations.notes


def is_read(name: str) -> bool:
    """Return True if node remedy reads a ConfigMap of this name."""
    return name in (_CONFIG_MAP, SETTINGS_MAP, PAUSE_MAP, CLUSTER) or name.startswith(
        (f"{_CONFIG_MAP}-", CONFIG, METHOD)
    )


def load_config(
    files: Mapping[str, str], maps: Mapping[str, Mapping[str, str]], last: LoadedConfig
) -> LoadedConfig:
    """Return the configuration of all sources.

    `files`: texts by path. `maps`: data of the cluster's ConfigMaps by name. `last`: what was in use before.
    """
    return _Loader(last).load(files, maps)


class _Loader:
    def __init__(self, last: LoadedConfig) -> None:
        self._last = last
        self._problems: list[InvalidConfig] = []
        self._raw: dict[str, Sequence[Any]] = {}
        self._documents: dict[str, RemedyConfiguration] = {}
        self._file_maps: dict[str, Mapping[str, str]] = {}

    def load(self, files: Mapping[str, str], cluster: Mapping[str, Mapping[str, str]]) -> LoadedConfig:
        for path, text in files.items():
            self._text(path, Path(path).stem, text, is_file=True)
        maps = {**cluster, **self._file_maps}
        for name in sorted(maps):
            if name == _CONFIG_MAP or name.startswith(f"{_CONFIG_MAP}-"):
                for key, text in sorted(maps[name].items()):
                    self._text(f"ConfigMap {name} key {key}", f"{name}/{key}", text, is_file=False)
        settings = RemedySettings()
        if SETTINGS_MAP in maps:
            settings, wrong = read_settings(maps[SETTINGS_MAP], self._last.configurations.settings)
            self._problems += wrong
        if PAUSE_MAP in maps:
            settings = msgspec.structs.replace(settings, pause=True)
        made = Configurations(
            tuple(self._documents.values()), maps, settings=settings, last=self._last.configurations
        )
        return LoadedConfig(
            configurations=made,
            documents=self._documents,
            raw=self._raw,
            file_maps=self._file_maps,
            problems=(*self._problems, *made.problems),
        )

    def _text(self, source: str, name: str, text: str, *, is_file: bool) -> None:
        try:
            self._raw[source] = parse_documents(text)
        except YamlError as error:
            field = f"line {error.line}" if error.line else ""
            self._problems.append(
                InvalidConfig(obj=source, field=field, problem=error.problem, fix=error.fix)
            )
            self._raw[source] = self._last.raw.get(source, ())
        documents = [one for raw in self._raw[source] for one in _flat(raw)]
        for number, raw in enumerate(documents, 1):
            document = f"{source} document {number}" if len(documents) > 1 else source
            self._document(document, f"{name}-{number}" if number > 1 else name, raw, is_file=is_file)

    def _document(self, document: str, name: str, raw: Any, *, is_file: bool) -> None:
        field = ConfigField(document, "", raw)
        try:
            kind = (field.child("apiVersion").value, field.child("kind").value)
            if kind == (API_VERSION, "Configuration"):
                self._configuration(document, name, raw)
            elif kind == ("v1", "ConfigMap") and is_file:
                self._config_map(field)
            else:
                found = f"apiVersion {kind[0]!r}, kind {kind[1]!r} is not read"
                fix = f"write {API_VERSION} Configuration" + (" or v1 ConfigMap" if is_file else "")
                raise field.invalid(found, fix)
        except InvalidConfig as error:
            self._problems.append(error)

    def _configuration(self, document: str, name: str, raw: Mapping[str, Any]) -> None:
        metadata = raw.get("metadata")
        given = metadata.get("name") if isinstance(metadata, dict) else None
        name = given if isinstance(given, str) and given else name
        read, problems = read_configuration(raw, document, name)
        self._problems += problems
        read = read or self._last.documents.get(name)
        if read is None:
            return
        if name in self._documents:
            there = self._documents[name].document
            problem = f"{name!r} is also the name of {there}"
            raise InvalidConfig(
                obj=document, field="metadata.name", problem=problem, fix="write another name"
            )
        self._documents[name] = read

    def _config_map(self, field: ConfigField) -> None:
        name = field.child("metadata").child("name").text("write the ConfigMap's name")
        if not is_read(name):
            prefixes = f"{CONFIG}, {METHOD}, {_CONFIG_MAP}"
            fix = f"write {CLUSTER}, {SETTINGS_MAP} or a name that begins with {prefixes}"
            raise field.child("metadata").child("name").invalid(f"{name!r} is not read", fix)
        if name in self._file_maps:
            raise field.invalid(f"ConfigMap {name} is there twice", "keep one of them")
        data = field.child("data")
        try:
            texts = {} if data.value is None else data.fields()
            self._file_maps[name] = {key: text.text("write a text: KEY: |-") for key, text in texts.items()}
        except InvalidConfig:
            if name in self._last.file_maps:
                self._file_maps[name] = self._last.file_maps[name]
            raise


def _flat(raw: Any) -> list[Any]:
    """Return the objects of a document, which is one object or a list of objects."""
    if isinstance(raw, dict) and raw.get("kind") in _LISTS:
        raw = raw.get("items") or []
    return raw if isinstance(raw, list) else [raw]


class ConfigSources:
    """The configuration in use. The caller runs `run` as a task, after `read_files`."""

    def __init__(
        self,
        files: Sequence[Path],
        *,
        client: KubeClient | None,
        namespace: str,
        clock: Clock,
        changed: Callable[[], object] = lambda: None,
        poll_seconds: float = 5.0,
        settle_seconds: float = 0.5,
    ) -> None:
        """`client` None: only the files are read. `changed` is called after each change of the configuration.

        `poll_seconds`: interval at which files are read. `settle_seconds`: pause after a change of a ConfigMap, since several
        often change together.
        """
        self._files = files
        self._clock = clock
        self._changed = changed
        self._poll_seconds = poll_seconds
        self._settle_seconds = settle_seconds
        self._maps = _Maps()
        self._reflector = (
            None
            if client is None
            else Reflector(client, CONFIG_MAPS, ConfigMap, self._maps, clock=clock, namespace=namespace)
        )
        self._texts: dict[str, str] = {}
        self._unreadable: tuple[InvalidConfig, ...] = ()
        self._loaded = LoadedConfig()
        self._reported: frozenset[str] = frozenset()
        self.ready = asyncio.Event()
        """Set once all sources were read."""

    @property
    def configurations(self) -> Configurations:
        """The configuration in use."""
        return self._loaded.configurations

    @property
    def problems(self) -> tuple[InvalidConfig, ...]:
        """Errors of the present documents."""
        return (*self._unreadable, *self._loaded.problems)

    def read_files(self) -> None:
        """Read the files once; blocks."""
        self._take(*self._read())

    async def run(self) -> None:
        """Follow all sources."""
        async with asyncio.TaskGroup() as group:
            if self._reflector is not None:
                group.create_task(self._reflector.run(), name="remedy ConfigMaps")
                await self._reflector.synced.wait()
                self._maps.changed.clear()
                self._load()
            self.ready.set()
            group.create_task(self._follow_files(), name="remedy configuration files")
            while True:
                await self._maps.changed.wait()
                await self._clock.sleep(self._settle_seconds)
                self._maps.changed.clear()
                self._load()

    async def _follow_files(self) -> None:
        while True:
            texts, unreadable = await asyncio.to_thread(self._read)
            if texts != self._texts or [*map(str, unreadable)] != [*map(str, self._unreadable)]:
                self._take(texts, unreadable)
            await self._clock.sleep(self._poll_seconds)

    def _read(self) -> tuple[dict[str, str], tuple[InvalidConfig, ...]]:
        """Return the texts of the files, the last one of a file that cannot be read, and why."""
        texts: dict[str, str] = {}
        problems = []
        for file in self._files:
            path = str(file)
            try:
                # A ConfigMap that is mounted in a pod has symbolic links.
                texts[path] = read_regular(file.resolve(), MAX_BYTES).decode()
            except (OSError, UnicodeDecodeError, RuntimeError) as error:
                problem = getattr(error, "strerror", None) or str(error)
                fix = "write the file as UTF-8, or remove the option"
                problems.append(InvalidConfig(obj=path, field="", problem=problem, fix=fix))
                if path in self._texts:
                    texts[path] = self._texts[path]
        return texts, tuple(problems)

    def _take(self, texts: dict[str, str], unreadable: tuple[InvalidConfig, ...]) -> None:
        self._texts, self._unreadable = texts, unreadable
        self._load()

    def _load(self) -> None:
        self._loaded = load_config(self._texts, self._maps.known, self._loaded)
        if self._reflector is not None and not self._reflector.synced.is_set():
            return  # what the files lack may be in the cluster
        made = self._loaded.configurations
        lines = {str(error) for error in self.problems} | set(self._loaded.notes)
        for problem in self.problems:
            if str(problem) not in self._reported:
                log.warning("Refused configuration", err=str(problem))
        for note in self._loaded.notes:
            if note not in self._reported:
                log.info("Read configuration", note=note)
        self._reported = frozenset(lines)
        count = sum(len(one.thresholds) for one in made.documents)
        log.info("Loaded configuration", thresholds=count, problems=len(self.problems))
        self._changed()


class _Maps:
    """ConfigMaps that node remedy reads, by name. Implements `ReflectorSink`."""

    def __init__(self) -> None:
        self.known: dict[str, Mapping[str, str]] = {}
        self.changed = asyncio.Event()

    def replace(self, items: Sequence[ConfigMap], unreadable: Sequence[ObjectMeta]) -> None:
        there = {item.metadata.name: item.data for item in items if is_read(item.metadata.name)}
        kept = {one.name: self.known[one.name] for one in unreadable if one.name in self.known}
        self._set({**kept, **there})

    def put(self, item: ConfigMap) -> None:
        if is_read(item.metadata.name):
            self._set({**self.known, item.metadata.name: item.data})

    def drop(self, item: ConfigMap) -> None:
        self._set({name: data for name, data in self.known.items() if name != item.metadata.name})

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the last data. The reflector has already logged the problem."""

    def _set(self, known: dict[str, Mapping[str, str]]) -> None:
        if known != self.known:
            self.known = known
            self.changed.set()
