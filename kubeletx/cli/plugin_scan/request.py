"""Messages between the two processes of a scan: one `ScanRequest`, and a line of JSON for each `ScanReport`."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeletx.server.views import PluginView


class ScanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an agent that affect how it loads plugins.

    `root_dir`: its root directory. `disabled`, `isolation`: as in the configuration. `sections`: the plugins' sections of
    the configuration, and `origin` the file that contains them; None: not checked. `ended`: why plugins are not imported
    again, by plugin as messages show it.
    """

    root_dir: str
    disabled: tuple[str, ...] = ()
    isolation: dict[str, str] = {}
    sections: dict[str, Any] | None = None
    origin: str = ""
    ended: dict[str, str] = {}


class ScanReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress or result. `importing`: the plugin whose import begins; empty when it has ended. `plugins`: the result."""

    importing: str = ""
    name: str = ""
    plugins: tuple[PluginView, ...] | None = None
