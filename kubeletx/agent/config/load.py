"""`load_config`: builds `AgentConfig` from defaults, file, drop-in directory and flags, in that order.

The file is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) in YAML or JSON with an additional section
``kubeletx:``. A drop-in directory contains ``*.conf`` files of the same format, also in subdirectories; they are read
in order of name. Later values replace earlier ones; maps are merged key by key. All mistakes are raised together.

Keys and flags are looked up in `tree.SETTINGS`, then among the kubelet's settings that have no effect (`kubelet_options`);
an unknown key is refused. Lists of endpoints are not replaced: flags' endpoints come before files' (DECISIONS 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text.yaml import YamlError, parse_documents
from kubeletx.runtimes.endpoints.problems import raise_all

from .check import check, dropped_servers, unenforced
from .kinds import Duration, SettingKind, is_unset
from .kinds_kubelet import KubeletOption
from .kubelet_options import OPTION_BY_FIELD, OPTION_BY_FLAG
from .kubelet_words import KUBELET_ROOT
from .tree import (
    BY_FLAG,
    BY_KEY,
    DEFAULT_EVICTION_HARD,
    ENDPOINT_KEYS,
    KUBELET_PROCESS,
    AgentConfig,
    EndpointText,
    Setting,
    UnusedSetting,
)

_HEADER: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
_MAPS: Final = frozenset(
    key for key, setting in BY_KEY.items() if type(setting.kind).__name__ in ("Pairs", "Tables")
)
_LEGACY: Final = {legacy: path for path, (_, legacy) in ENDPOINT_KEYS.items()}
_UNREADABLE: Final = object()
_MAX_BYTES: Final = 10 * 1024 * 1024


class _Values:
    """The values read so far, by path of the field in `AgentConfig`, their origins, and the mistakes found."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.endpoints: dict[str, list[EndpointText]] = {path: [] for path in ENDPOINT_KEYS}
        self.legacy: dict[str, EndpointText] = {}
        self.options: dict[KubeletOption, tuple[Any, str]] = {}
        """Settings without effect → value, and the file that contains it; the file is empty for a flag."""
        self.negative: list[UnusedSetting] = []
        """Durations below zero, which are ignored."""
        self.problems: list[InvalidConfig] = []

    def refuse(self, obj: str, field: str, problem: str, fix: str = "") -> None:
        """Record one mistake; the caller continues to read, so that all mistakes are raised together.

        `obj`: the file, empty for a flag. `field`: the key or flag.
        """
        self.problems.append(InvalidConfig(obj=obj, field=field, problem=problem, fix=fix))

    def put(self, setting: Setting, value: Any, origin: str) -> None:
        """Set the value of a setting. It replaces an earlier value; a map of a file is merged with an earlier map."""
        if setting.key in _MAPS and not origin.startswith("flag") and setting.path in self.found:
            value = {**self.found[setting.path], **value}
        self.found[setting.path] = value
        self.origins[setting.path] = origin

    def forget(self, setting: Setting | KubeletOption) -> None:
        """Remove the value that was read for a setting, so that its default is used."""
        if isinstance(setting, KubeletOption):
            self.options.pop(setting, None)
            return
        self.endpoints.get(setting.path, []).clear()
        self.found.pop(setting.path, None)
        self.origins.pop(setting.path, None)

    def put_option(self, option: KubeletOption, value: Any, *, file: str = "") -> None:
        """Record the value of a setting without effect; it replaces an earlier value.

        `file`: the file that contains it; empty for a flag.
        """
        self.options.pop(option, None)
        self.options[option] = (value, file)

    def judge_options(self) -> tuple[UnusedSetting, ...]:
        """Check the values of the kubelet settings that have no effect in kubeletx.

        Records a mistake for each value that is refused, and returns the settings that are accepted with a warning.
        Called once, after every file and flag is read.
        """
        accepted = []
        for option, (value, file) in self.options.items():
            name = option.field if file else f"--{option.flag}"
            if option.is_refused(value):
                self.refuse(file, name, f"{_shown(value)} is not supported", option.fix or option.words)
            elif not option.is_silent(value):
                origin = file or f"flag {name}"
                accepted.append(
                    UnusedSetting(name=name, origin=origin, value=value, consequence=option.words)
                )
        return tuple(accepted)


def load_config(
    *,
    as_kubelet: bool = False,
    root_dir: Path | None = None,
    config_file: Path | None = None,
    config_dir: Path | None = None,
    flags: Mapping[str, Sequence[str]] | None = None,
) -> AgentConfig:
    """Read the effective configuration from defaults, `config_file`, the files in `config_dir`, and `flags`.

    `flags`: the texts given for each flag, in order, by flag name without dashes; flags not given are absent.
    `root_dir`: root directory given by flag; None: the default. `as_kubelet`: use the kubelet's defaults for the root
    directory, the OOM score and the limit of open files. Raises InvalidConfig for one mistake, `InvalidConfigs` for
    several.
    """
    values = _Values()
    for path in _files(config_file, config_dir, values):
        _read_file(path, values, is_drop_in=path != config_file)
    _read_flags(flags or {}, values)
    config = _build(values, root_dir, _defaults(as_kubelet))
    values.problems.extend(check(config))
    raise_all(values.problems)
    return config


def _defaults(as_kubelet: bool) -> AgentConfig:
    return AgentConfig(root_dir=KUBELET_ROOT, process=KUBELET_PROCESS) if as_kubelet else AgentConfig()


def _files(config_file: Path | None, config_dir: Path | None, values: _Values) -> Iterator[Path]:
    if config_file is not None:
        yield config_file
    if config_dir is None:
        return
    if not config_dir.is_dir():
        values.refuse(
            "--config-dir", str(config_dir), "is not a directory", "create it or leave the flag out"
        )
        return
    yield from _drop_ins(config_dir)


def _drop_ins(directory: Path) -> Iterator[Path]:
    """Yield the ``*.conf`` files in the directory and its subdirectories, sorted by name.

    Links to directories, and directories whose names begin with ``..``, are left out: a mounted config map has both.
    """
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            if not path.is_symlink() and not path.name.startswith(".."):
                yield from _drop_ins(path)
        elif path.suffix == ".conf":
            yield path


def _read_file(path: Path, values: _Values, *, is_drop_in: bool) -> None:
    document = _parse(path, values)
    if document is None:
        return
    file = str(path)
    for field, expected in _HEADER.items():
        value = document.pop(field, None)
        if not value:
            values.refuse(file, field, "is missing", f"write {field}: {expected}")
        elif value != expected:
            values.refuse(file, field, f"{value!r} is not supported", f"use {expected}")
    for key, value in _flatten(document, ""):
        if not (is_drop_in and value is None and _take_back(key, values)):
            _read_key(file, key, value, values)


def _parse(path: Path, values: _Values) -> dict[str, Any] | None:
    """Parse the file; if it is unreadable or invalid, record a mistake and return None.

    A duplicate YAML key is a mistake.
    """
    file = str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            values.refuse(file, "", "is larger than 10 MB", "is this the right file?")
            return None
        documents = parse_documents(path.read_text(encoding="utf-8-sig"))
    except OSError as err:
        values.refuse(file, "", f"cannot be read: {err.strerror}", "correct --config or the file's rights")
        return None
    except UnicodeDecodeError:
        values.refuse(file, "", "is not UTF-8", "save it as UTF-8")
        return None
    except YamlError as err:
        values.refuse(file, f"line {err.line}" if err.line else "", err.problem, err.fix)
        return None
    if not documents:
        return {}
    if len(documents) > 1:
        values.refuse(file, "", f"holds {len(documents)} documents", "keep one of them")
        return None
    if not isinstance(documents[0], dict):
        values.refuse(file, "", "is not a map of fields", f"start it with 'kind: {_HEADER['kind']}'")
        return None
    return documents[0]


_BRANCHES: Final = frozenset(
    key[: at + 1]
    for key in (*BY_KEY, *OPTION_BY_FIELD)
    for at in range(len(key))
    if key[at] == "."
)  # fmt: skip


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield each value with its key, in which the names of nested maps are joined by dots.

    A map is descended into only if the key of a known setting begins with the map's key and a dot; any other map is
    yielded as a value, null too.
    """
    for name, value in table.items():
        key = f"{prefix}{name}"
        if f"{key}." in _BRANCHES and isinstance(value, dict):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _take_back(key: str, values: _Values) -> bool:
    """Remove what earlier files said about the key and the keys below it, as null in a JSON merge patch does.

    Returns False if there is no such key.
    """
    known: dict[str, Setting | KubeletOption] = {**BY_KEY, **OPTION_BY_FIELD}
    settings = [setting for name, setting in known.items() if f"{name}.".startswith(f"{key}.")]
    for setting in settings:
        values.forget(setting)
    return bool(settings)


def _read_key(file: str, key: str, value: Any, values: _Values) -> None:
    if key in _LEGACY:
        _read_legacy_endpoint(file, key, value, values)
        return
    if value is None and f"{key}." in _BRANCHES:
        return
    option = BY_KEY.get(key) or OPTION_BY_FIELD.get(key)
    if option is None:
        values.refuse(file, key, "is not a known field", _suggest(key, (*BY_KEY, *OPTION_BY_FIELD)))
        return
    try:
        if is_unset(option.kind, value):
            values.forget(option)
            if isinstance(value, str) and value.startswith("-"):
                values.negative.append(
                    UnusedSetting(
                        name=key, origin=file, value=value, consequence="it is negative; the default is used"
                    )
                )
            return
        read = option.kind.from_file(value)
    except ValueError as err:
        values.refuse(file, key, f"{_shown(value)} {err}")
        return
    setting = option
    if isinstance(setting, KubeletOption):
        values.put_option(setting, read, file=file)
    elif setting.path in ENDPOINT_KEYS:
        values.endpoints[setting.path].extend(
            EndpointText(text=text, origin=file, key=key if isinstance(value, str) else f"{key}[{index}]")
            for index, text in enumerate(_lines(value, read))
        )
        values.origins[setting.path] = file
    else:
        values.put(setting, read, file)


def _lines(value: Any, read: tuple[str, ...]) -> tuple[str, ...]:
    """Return the endpoint texts of a setting.

    If `value`, as decoded from the file, is a string, it is one text: endpoints may contain commas, at which `read` was
    split. Otherwise `read`, the list, is returned.
    """
    return (value,) if isinstance(value, str) else read


def _read_legacy_endpoint(file: str, key: str, value: Any, values: _Values) -> None:
    if value is None or value == "":
        values.legacy.pop(_LEGACY[key], None)
    elif not isinstance(value, str):
        values.refuse(file, key, f"{_shown(value)} is not a string", "write unix:///path/to.sock")
    else:
        values.legacy[_LEGACY[key]] = EndpointText(text=value, origin=file, key=key)


def _read_flags(flags: Mapping[str, Sequence[str]], values: _Values) -> None:
    for name, texts in flags.items():
        if name in OPTION_BY_FLAG:
            option = OPTION_BY_FLAG[name]
            value = _read_texts(name, option.kind, texts, values)
            if value is not _UNREADABLE:
                values.put_option(option, value)
            continue
        setting, origin = BY_FLAG[name], f"flag --{name}"
        if setting.path in ENDPOINT_KEYS:
            if not any(text.strip() for text in texts):
                values.refuse("", f"--{name}", "is empty", "leave the flag out, or write TYPE:NAME:URL")
            first = [EndpointText(text=text, origin=origin) for text in texts]
            values.endpoints[setting.path][:0] = first
            values.legacy.pop(setting.path, None)
            values.origins[setting.path] = origin
            continue
        read = _read_texts(name, setting.kind, texts, values)
        if read is not _UNREADABLE:
            is_default = isinstance(setting.kind, Duration) and setting.kind.zero_is_unset and read == 0
            values.put(setting, setting.default if is_default else read, origin)


def _read_texts(name: str, kind: SettingKind, texts: Sequence[str], values: _Values) -> Any:
    """Parse the texts of a flag that may be repeated, and combine their values.

    Records a mistake for each text that cannot be parsed; returns `_UNREADABLE` if none can be.
    """
    merged: Any = _UNREADABLE
    for text in texts:
        try:
            read = kind.from_flag(text)
        except ValueError as err:
            values.refuse("", f"--{name}", f"{_shown(text)} {err}")
            continue
        merged = _join(merged, read)
    return merged


def _join(before: Any, now: Any) -> Any:
    """Combine two values of a repeated flag: maps and lists are joined; otherwise the later value is returned."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {**before, **now}
    if isinstance(before, tuple) and isinstance(now, tuple):
        return before + now
    return now


def _build(values: _Values, root_dir: Path | None, base: AgentConfig) -> AgentConfig:
    """Build the `AgentConfig` from the values that could be read, on top of the defaults in `base`."""
    for path, given in values.endpoints.items():
        texts = given
        legacy = values.legacy.get(path)
        if legacy is not None and not texts:
            texts = [legacy]
            values.origins[path] = legacy.origin
        elif legacy is not None:
            values.refuse(
                legacy.origin,
                ENDPOINT_KEYS[path][1],
                "is set together with " + ENDPOINT_KEYS[path][0],
                "keep one of the two",
            )
        if texts:
            values.found[path] = tuple(texts)
    sections: dict[str, dict[str, Any]] = {}
    for path, value in {**_defaults_that_follow(values), **values.found}.items():
        section, _, attribute = path.partition(".")
        sections.setdefault(section, {})[attribute] = value
    hard = sections.get("eviction", {}).get("hard")
    if hard is not None and sections["eviction"].get("merge_defaults"):
        sections["eviction"]["hard"] = {**DEFAULT_EVICTION_HARD, **hard}
    changes = {
        section: msgspec.structs.replace(getattr(base, section), **fields)
        for section, fields in sections.items()
    }
    if root_dir is not None:
        changes["root_dir"] = root_dir.absolute()
        values.origins["root_dir"] = "flag --root-dir"
    config = msgspec.structs.replace(base, **changes, origins=dict(values.origins))
    dropped = tuple(dropped_servers(config))
    servers = [
        server for server in config.network.cluster_dns if server not in {item.value for item in dropped}
    ]
    return msgspec.structs.replace(
        config,
        network=msgspec.structs.replace(config.network, cluster_dns=tuple(servers)),
        unused=(*values.judge_options(), *unenforced(config), *dropped, *values.negative),
    )


def _defaults_that_follow(values: _Values) -> dict[str, Any]:
    """Return the defaults that depend on other settings, by path, as in a kubelet.

    Source: kubelet, SetDefaults_KubeletConfiguration.
    """
    defaults: dict[str, Any] = {}
    if (values.found.get("images.max_parallel_pulls") or 1) > 1:
        defaults["images.serialize_pulls"] = False
    update = "node.status_update_seconds"
    if update in values.found and not values.origins[update].startswith("flag"):
        defaults["cluster.report_seconds"] = values.found[update]
    return defaults


def _suggest(key: str, known: Sequence[str]) -> str:
    import difflib  # here: only a typo needs its 0.5 MiB

    names = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    if names:
        return f"did you mean {names[0]}?"
    last = key.rpartition(".")[2]
    elsewhere = [name for name in known if name.rpartition(".")[2] == last]
    return f"did you mean {elsewhere[0]}?" if elsewhere else "remove it"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
