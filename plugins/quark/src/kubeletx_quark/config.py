"""`QuarkConfig`: the settings of one endpoint, from the parameters of its URL.

container:quark:unix:///run/containerd/containerd.sock?handler=quark&strategy=signal&stop=kill

handler         runtime handler of containerd; without it, containerd's default
strategy        freezer, pause or signal, see `StrategyName`; without it, see `choice`. A pod's annotation has priority
freeze-signal   strategy signal: the number of the signal that freezes, 19 (SIGSTOP) by default
thaw-signal     strategy signal: the number of the signal that wakes, 18 (SIGCONT) by default
stop            cri (default): containers are stopped by CRI; kill: by the task service
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kubeletx.api import InvalidConfig

E = TypeVar("E", bound=enum.Enum)

PARAMETERS = ("handler", "strategy", "freeze-signal", "thaw-signal", "stop")
_LAST_SIGNAL = 64


class StrategyName(enum.Enum):
    """Mechanism that freezes containers."""

    FREEZER = "freezer"
    """The freezer of the container's cgroup, written directly."""
    PAUSE = "pause"
    """Pause and Resume of containerd's task service, which the OCI runtime carries out."""
    SIGNAL = "signal"
    """Signals to the container's first process, which a runtime such as Quark takes as requests."""


class StopName(enum.Enum):
    """Mechanism that stops containers."""

    CRI = "cri"
    KILL = "kill"


class QuarkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one endpoint. Signals are numbers. `strategy` None: chosen by the runtime type, see `choice`."""

    strategy: StrategyName | None = None
    freeze_signal: int = int(signal.SIGSTOP)
    thaw_signal: int = int(signal.SIGCONT)
    stop: StopName = StopName.CRI


def read_config(runtime: str, parameters: Mapping[str, str]) -> QuarkConfig:
    """Read the settings from the parameters of the endpoint's URL. Raises InvalidConfig for an unknown value.

    `runtime`: name of the endpoint, for messages.
    """
    default = QuarkConfig()
    named = "strategy" in parameters
    return QuarkConfig(
        strategy=_word(runtime, parameters, "strategy", StrategyName.FREEZER) if named else None,
        freeze_signal=_signal(runtime, parameters, "freeze-signal", default.freeze_signal),
        thaw_signal=_signal(runtime, parameters, "thaw-signal", default.thaw_signal),
        stop=_word(runtime, parameters, "stop", default.stop),
    )


def _word(runtime: str, parameters: Mapping[str, str], name: str, default: E) -> E:
    word, words = parameters.get(name, default.value), type(default)
    try:
        return words(word)
    except ValueError:
        known = ", ".join(member.value for member in words)
        raise _bad(runtime, f"unknown {name} {word!r}", f"use one of: {known}") from None


def _signal(runtime: str, parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _LAST_SIGNAL):
        raise _bad(runtime, f"{name} {text!r} is not a signal", f"give a number from 1 to {_LAST_SIGNAL}")
    return int(text)


def _bad(runtime: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(field=f"runtime {runtime}", problem=f"{problem} in its URL", fix=fix)
