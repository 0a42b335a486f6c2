"""Lights of the node: what each shows is in section ``leds``, the patterns are run by the kernel (/sys/class/leds)."""

from __future__ import annotations

import enum
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec

from ..config import read_section
from ..model import Complain, Reach
from ..topics import HealthStatus

LedPattern = tuple[tuple[bool, int], ...]
"""Steps that are repeated: on or off, and for how many milliseconds. A single step is constant."""
ON: Final[LedPattern] = ((True, 0),)
OFF: Final[LedPattern] = ((False, 0),)
FAST: Final[LedPattern] = ((True, 100), (False, 100))
SLOW: Final[LedPattern] = ((True, 1000), (False, 1000))


class LedMeaning(enum.StrEnum):
    """Subject of a light."""

    STATUS = "status"
    """On: all is well. Fast: the boot ends. Slow: an image is tested. 2 blinks: no controller; 3: a required check
    fails; 4: maintenance mode."""
    CONTACT = "contact"
    """On while the controller is reached."""
    PROBLEM = "problem"
    """On while a required check fails, or in maintenance mode."""
    BLINKER = "blinker"
    """Blinks that another agent asks for by the topic LedBlinkerConfig."""


class LedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``leds``. `show`: what each light shows, by its name in `directory`."""

    show: dict[str, LedMeaning] = {}
    directory: str = "/sys/class/leds"


def blinks(count: int) -> LedPattern:
    """Return so many blinks and a pause, with the times of EVE's ledmanager; off for 0."""
    if count <= 0:
        return OFF
    return (*((True, 200), (False, 200)) * (count - 1), (True, 200), (False, 1400))


def pattern_of(meaning: LedMeaning, status: HealthStatus, blink_counter: int) -> LedPattern:
    """Return the pattern of a light."""
    is_reached = status.contact in {Reach.SUCCESS, Reach.TEMPORARY_FAIL}
    match meaning:
        case LedMeaning.CONTACT:
            return ON if is_reached else OFF
        case LedMeaning.PROBLEM:
            return OFF if status.is_healthy and not status.maintenance_mode else ON
        case LedMeaning.BLINKER:
            return blinks(min(blink_counter, 20))
    if status.operation:
        return FAST
    if status.remaining_test_time:
        return SLOW
    if not is_reached:
        return blinks(2)
    return blinks(3) if not status.is_healthy else blinks(4) if status.maintenance_mode else ON


class Leds:
    """The lights. Writing may block with a slow bus, so it is done by a thread."""

    def __init__(self, section: Any, complain: Complain) -> None:
        self._complain = complain
        self._shown: dict[str, LedPattern] = {}
        self._thread: Thread | None = None
        self._settings = read_section(section, LedSettings, "leds", complain)

    def show(self, status: HealthStatus, blink_counter: int) -> None:
        """Let each light show this status, as soon as the last change is written."""
        if self._thread is not None and self._thread.is_alive():
            return
        wanted = {
            name: pattern_of(meaning, status, blink_counter) for name, meaning in self._settings.show.items()
        }
        changed = {name: pattern for name, pattern in wanted.items() if self._shown.get(name) != pattern}
        if changed:
            self._thread = Thread(target=self._write_all, args=(changed,), name="leds", daemon=True)
            self._thread.start()

    def _write_all(self, changed: dict[str, LedPattern]) -> None:
        for name, pattern in changed.items():
            try:
                write_led(Path(self._settings.directory) / name, pattern)
            except (OSError, ValueError) as error:
                self._complain(f"leds.show.{name}: {error}")
            else:
                self._shown[name] = pattern


def write_led(led: Path, pattern: LedPattern) -> None:
    """Let the kernel run a pattern, as far as it can: triggers pattern or timer, else constant. Raises OSError, ValueError."""
    brightness = int((led / "max_brightness").read_text())
    triggers = (led / "trigger").read_text().replace("[", "").replace("]", "").split()
    if len(pattern) > 1 and "pattern" in triggers:
        (led / "trigger").write_text("pattern")
        # Brightness changes gradually during a step; a second step of 0 ms makes an edge.
        steps = ((is_on * brightness, milliseconds) for is_on, milliseconds in pattern)
        (led / "pattern").write_text(" ".join(f"{level} {time} {level} 0" for level, time in steps))
    elif len(pattern) > 1 and "timer" in triggers:
        (led / "trigger").write_text("timer")
        for name, (_, milliseconds) in zip(("delay_on", "delay_off"), pattern[-2:], strict=True):
            (led / name).write_text(str(milliseconds))
    else:
        (led / "trigger").write_text("none")
        (led / "brightness").write_text(str(pattern[0][0] * brightness))
