"""Reads the CNI network configuration: the first usable file in the configuration directory. Source: CNI spec 1.0.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import Unavailable
from kubeletx.kube.text.numbers import whole_number

_SUFFIXES = (".conflist", ".conf", ".json")


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one CNI network.

    `plugins`: configuration of each plugin, in the order of ADD. `disable_check`: never call CHECK. `origin`: the file
    that it was read from.
    """

    name: str
    cni_version: str
    plugins: tuple[dict[str, Any], ...]
    disable_check: bool = False
    origin: str = ""

    def supports(self, version: str) -> bool:
        """Return True if the network uses this version of the specification or a later one."""
        return _numbers(self.cni_version) >= _numbers(version)


def load_config(directory: Path) -> NetworkConfig:
    """Load the first usable configuration file, in the order of names. Raises Unavailable if there is none."""
    problems: list[str] = []
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise Unavailable(f"pod network: cannot read {directory}: {error.strerror}") from error
    for path in paths:
        try:
            return parse_config(path.read_bytes(), str(path))
        except (OSError, ValueError) as error:
            problems.append(f"{path.name}: {error}")
    problem = f"no usable CNI configuration: {'; '.join(problems)}" if problems else "no CNI configuration"
    raise Unavailable(
        f"pod network: {problem} in {directory}; put a .conflist file there, see 'The pod network' in docs/install.md"
    )


def parse_config(data: bytes, origin: str = "") -> NetworkConfig:
    """Parse a .conflist file, or a .conf file with one plugin. Raises ValueError if it is invalid.

    `origin`: path of the file, for messages.
    """
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    listed = raw.get("plugins", [raw] if "type" in raw else [])
    if not isinstance(listed, list) or not listed:
        raise ValueError("it lists no plugins")
    for number, plugin in enumerate(listed):
        if not isinstance(plugin, dict) or not isinstance(plugin.get("type"), str) or "/" in plugin["type"]:
            raise ValueError(f"plugins[{number}].type is missing or wrong")
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("name is missing")
    return NetworkConfig(
        name=name,
        cni_version=str(raw.get("cniVersion") or "0.1.0"),
        plugins=tuple(listed),
        disable_check=raw.get("disableCheck") in (True, "true"),
        origin=origin,
    )


def plugin_input(
    config: NetworkConfig,
    plugin: dict[str, Any],
    *,
    capabilities: dict[str, Any],
    previous: dict[str, Any] | None,
) -> bytes:
    """Build the standard input of a CNI plugin.

    `plugin`: the plugin's entry in `config`. `capabilities`: capability arguments by name, such as portMappings; those
    that the plugin does not declare are left out. `previous`: CNI result to pass as prevResult; None to pass none.
    """
    wanted = plugin.get("capabilities") or {}
    offered = {name: value for name, value in capabilities.items() if wanted.get(name) and value}
    data = {k: v for k, v in plugin.items() if k != "capabilities"}
    data |= {"name": config.name, "cniVersion": config.cni_version}
    if offered:
        data["runtimeConfig"] = {**(plugin.get("runtimeConfig") or {}), **offered}
    if previous is not None:
        data["prevResult"] = previous
    return msgspec.json.encode(data)


def find_plugin(name: str, directories: Sequence[Path]) -> Path:
    """Return the path of the plugin's program. Raises Unavailable if none of the directories has it."""
    for directory in directories:
        path = directory / name
        if path.is_file():
            return path
    looked_at = ", ".join(str(d) for d in directories)
    raise Unavailable(
        f"pod network: CNI plugin {name!r} is not in {looked_at}; install it or set --cni-bin-dir"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(whole_number(part) or 0 for part in version.split("."))
