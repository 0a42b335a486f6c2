"""Settings of the guardian: items of the reference by their names, and what the configuration file adds.

Every source of settings may be missing or wrong: a bad item is named in one line and keeps its last good value. Items
come from the file, then from ``kubeletx health config``, then from the topic ConfigItemValueMap; later ones win.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

_MAX: Final = 4294967295
_T = TypeVar("_T")
MOST_ENTRIES: Final = 100
"""Entries of a list in a section that are read."""
MAX_BYTES: Final = 1 << 20


class SettingItem(NamedTuple):
    """A number with its default and limits, or (`words`) one of several words."""

    default: int | str
    minimum: int = 0
    maximum: int = _MAX
    words: tuple[str, ...] = ()
    about: str = ""


ITEMS: Final[Mapping[str, SettingItem]] = {
    "timer.reboot.no.network": SettingItem(604800, 120, about="s without controller until a reboot"),
    "timer.update.fallback.no.network": SettingItem(300, 60, about="s without controller until a fallback"),
    "timer.test.baseimage.update": SettingItem(600, 30, 3600, about="s of the test window"),
    "timer.update.fallback.failed.checks": SettingItem(
        300, 60, about="s of a failed required check until a fallback"
    ),
    "timer.vault.ready.cutoff": SettingItem(300, 60, about="s for the vault to open"),
    "timer.config.interval": SettingItem(60, 5, 86400, about="s between contacts with the controller"),
    "force.fallback.counter": SettingItem(0, about="a change asks for the other image"),
    "kubernetes.drain.timeout": SettingItem(24, 1, about="hours"),
    "drain.skip.k8sapinotreachable.timeout": SettingItem(300, 1, about="s"),
    "kubernetes.drain.allnodes.config.multiple": SettingItem(2, 1, 1000, about="times timer.config.interval"),
    "maintenance.mode": SettingItem("none", words=("none", "enabled", "disabled")),
    "contact.fresh.limit": SettingItem(180, 10, about="s after which a silent source counts as unreachable"),
    "contact.successes": SettingItem(1, 0, 1000, about="contacts after boot that a commit needs"),
    "contact.lost.in.window": SettingItem("pause", words=("pause", "restart"), about="the test window"),
}
"""Items by name. Names with their defaults and limits are from EVE (pkg/pillar/types/global.go); `contact.*` and
``timer.update.fallback.failed.checks`` are the guardian's own."""


class HealthSettings(msgspec.Struct, frozen=True):
    """Current settings. `items`: values that differ from the defaults, checked. `sections`: of the file, as read."""

    items: Mapping[str, int | str] = {}
    sections: Mapping[str, Any] = {}

    def number(self, name: str) -> int:
        value = self.items.get(name, ITEMS[name].default)
        assert isinstance(value, int)
        return value

    def word(self, name: str) -> str:
        return str(self.items.get(name, ITEMS[name].default))


SECTIONS: Final = ("backend", "contact", "checks", "watchdog", "leds")
"""Keys of the configuration file that are not items: their values are mappings, lists or the name of a backend."""


def check_item(name: str, value: object) -> int | str:
    """Return the value of an item. Raises ValueError with the reason, one line."""
    item = ITEMS.get(name)
    if item is None:
        raise ValueError(f"{name}: no item has this name; see kubeletx health config")
    if item.words:
        if value not in item.words:
            raise ValueError(f"{name}: {value!r} is not one of {', '.join(item.words)}")
        return str(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: {str(value)[:60]!r} is not a whole number")
    if not item.minimum <= value <= item.maximum:
        raise ValueError(f"{name}: {value} is not between {item.minimum} and {item.maximum}")
    return value


def merge(
    settings: HealthSettings, values: Mapping[str, object], complain: Callable[[str], object]
) -> HealthSettings:
    """Return settings with these items; `complain` gets one line for each bad one, which keeps its value."""
    items = dict(settings.items)
    for name, value in values.items():
        try:
            items[name] = check_item(name, value)
        except ValueError as error:
            complain(str(error))
    return HealthSettings(items, settings.sections)


def read_file(path: Path, complain: Callable[[str], object]) -> HealthSettings:
    """Return the settings of a YAML file. Whatever is wrong with it, the rest counts and `complain` gets a line."""
    import yaml  # a guardian without a file does not need it

    from kubeletx.linux.files import read_regular

    try:
        content = yaml.load(
            read_regular(path, MAX_BYTES), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        complain(f"{path}: {' '.join(str(error).split())}; the defaults count")
        return HealthSettings()
    if content is None:
        return HealthSettings()
    if not isinstance(content, dict):
        complain(
            f"{path}: a mapping of items is expected, found {type(content).__name__}; the defaults count"
        )
        return HealthSettings()
    sections = {name: content[name] for name in SECTIONS if name in content}
    items = {str(name): value for name, value in content.items() if name not in sections}
    return merge(HealthSettings(sections=sections), items, lambda line: complain(f"{path}: {line}"))


def convert(value: Any, kind: type[_T], path: str) -> _T:
    """Return a section, or an entry of one, as this type. Raises ValueError that names the path, one line."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {str(error).replace(' - at `$.', ' - at `')}") from None


def read_section(value: Any, kind: type[_T], path: str, complain: Callable[[str], object]) -> _T:
    """Return a section; a wrong one counts as its defaults, and `complain` gets a line."""
    try:
        return convert(value, kind, path)
    except ValueError as error:
        complain(f"{error}; its defaults count")
        return kind()


def read_entries(value: Any, path: str, complain: Callable[[str], object]) -> list[tuple[str, Any]]:
    """Return the entries of a list, each with its path; None is an empty list."""
    if not isinstance(value, list | None):
        complain(f"{path}: a list is expected, found {str(value)[:40]!r}; it is left out")
    entries = value if isinstance(value, list) else []
    if len(entries) > MOST_ENTRIES:
        complain(f"{path}: {len(entries)} entries; the first {MOST_ENTRIES} count")
    return [(f"{path}[{index}]", entry) for index, entry in enumerate(entries[:MOST_ENTRIES])]
