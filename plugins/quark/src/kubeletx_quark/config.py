"""`QuarkConfig`: the settings of one endpoint, from the parameters of its URL.

    container:quark:unix:///run/containerd/containerd.sock?handler=quark&strategy=freezer

``handler``: runtime handler of containerd; without it, containerd's default. ``strategy``: a value of `Strategy`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from kubeletx.api import InvalidConfig


class StrategyName(enum.Enum):
    """Mechanism that freezes containers."""

    FREEZER = "freezer"
    """The freezer of the container's cgroup, written directly."""


class QuarkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one endpoint."""

    strategy: StrategyName = StrategyName.FREEZER


def read_config(runtime: str, parameters: Mapping[str, str]) -> QuarkConfig:
    """Read the settings from the parameters of the endpoint's URL. Raises InvalidConfig for an unknown strategy.

    `runtime`: name of the endpoint, for messages.
    """
    word = parameters.get("strategy", StrategyName.FREEZER.value)
    try:
        return QuarkConfig(strategy=StrategyName(word))
    except ValueError:
        raise InvalidConfig(
            field=f"runtime {runtime}",
            problem=f"unknown strategy {word!r} in its URL",
            fix=f"use one of: {', '.join(one.value for one in StrategyName)}",
        ) from None
