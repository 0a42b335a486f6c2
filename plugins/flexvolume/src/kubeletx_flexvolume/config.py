"""Settings of the volume driver: section ``kubeletx.plugins.flexvolume`` of the configuration file."""

from __future__ import annotations

from typing import Annotated

import msgspec


class FlexSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of the part that calls FlexVolume drivers; each has a default that works."""

    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 100.0
    """Deadline of all steps that make one volume available, release it or expand it. Keep it about 20 s below
    ``kubeletx.pluginVolumeTimeout`` (120 s): after a failure the steps are undone, with a deadline of their own.
    """
    init_timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Deadline of a driver's ``init``."""
    environment: dict[str, str] = {}
    """Environment variables that drivers get in addition to PATH, HOME, LANG and KUBELETX_CALL (ID of the call), such as
    HTTPS_PROXY.
    """
