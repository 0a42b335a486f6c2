"""`effective_values`: lists every setting with its value and origin, for ``kubeletx config view``."""

from __future__ import annotations

import operator
from typing import Any

from kubeletx.server.views import ConfigValue

from .tree import ENDPOINT_KEYS, SETTINGS, AgentConfig


def effective_values(config: AgentConfig) -> tuple[ConfigValue, ...]:
    """Return one entry per setting, in the order of `SETTINGS`, then the configured settings that have no effect."""
    rows = [
        ConfigValue(
            key="",
            value=str(config.root_dir),
            origin=config.origins.get("root_dir", "default"),
            flag="root-dir",
        )
    ]
    for setting in SETTINGS:
        value: Any = operator.attrgetter(setting.path)(config)
        shown = [item.text for item in value] if setting.path in ENDPOINT_KEYS else setting.kind.show(value)
        origin = config.origins.get(setting.path, "default")
        rows.append(ConfigValue(key=setting.key, value=shown, origin=origin, flag=setting.flag))
    rows.extend(
        ConfigValue(
            key="" if item.name.startswith("--") else item.name,
            value=item.value,
            origin=f"{item.origin} (no effect)",
            flag=item.name.removeprefix("--") if item.name.startswith("--") else "",
            unused=True,
        )
        for item in config.unused
    )
    return tuple(rows)
