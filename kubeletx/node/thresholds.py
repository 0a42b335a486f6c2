"""Eviction thresholds: which are met, for how long, and the resulting node pressure. Pure.

`parse_thresholds` makes thresholds from the configuration. `step` compares them with one round of measurements
(observations); it returns the node's pressure, and the acting thresholds, which require an eviction now.

- A hard threshold acts as soon as it is met, a soft one after it was met for its whole grace period.
- A threshold that acted stays met until the signal exceeds it by the minimum reclaim.
- A pressure is reported from its first observation until `hold_seconds` after the last.
- An observation no newer than the previous one changes the conditions but starts no eviction.

Every observation has a place: `NODE`, or the file system of image stores. Source: kubelet, pkg/kubelet/eviction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text import quantity

from .readiness import Pressure

TRANSITION_SECONDS: Final = 300.0
"""Time for which a pressure is still reported after its last observation (evictionPressureTransitionPeriod)."""
NODE: Final = ""
"""Place of every observation, except observations of a separate image file system."""

MEMORY: Final = "memory.available"
PIDS: Final = "pid.available"
_DISK: Final = frozenset(
    f"{fs}.{what}" for fs in ("nodefs", "imagefs", "containerfs") for what in ("available", "inodesFree")
)
_WHOLE: Final = 1 << 40
SIGNALS: Final = frozenset({MEMORY, PIDS}) | _DISK


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction threshold: it is met while less than `amount` is available.

    `signal`: such as memory.available. `amount`: a quantity, or a percentage of the capacity. `minimum_reclaim`: amount
    beyond `amount` that must be available again before a threshold that acted is no longer met. `grace_seconds`: how
    long a soft threshold must be met before it acts.
    """

    signal: str
    amount: str
    is_hard: bool = True
    grace_seconds: float = 0.0
    minimum_reclaim: str = ""

    def value(self, capacity: int) -> int:
        """Return the amount below which the threshold is met, for a resource with this capacity."""
        return amount_of(self.amount, capacity)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a signal: available amount and capacity.

    `place`: `NODE`, or a name of the image file system that was measured. `at`: monotonic time of the measurement, in
    seconds.
    """

    signal: str
    available: int
    capacity: int
    place: str = NODE
    at: float = 0.0


class ThresholdKey(msgspec.Struct, frozen=True, order=True):
    """Identity of a threshold in one place: its signal, whether it is hard or soft, and `Observation.place`.

    A threshold of an image file system is met or not met for each place separately.
    """

    signal: str
    is_hard: bool
    place: str


class MetThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold that is met, with the observation that shows it: less than the threshold's amount is available."""

    threshold: Threshold
    observation: Observation

    @property
    def key(self) -> ThresholdKey:
        """Identity of the threshold in the place of the observation."""
        return ThresholdKey(self.threshold.signal, self.threshold.is_hard, self.observation.place)


class ThresholdState(msgspec.Struct, frozen=True, kw_only=True):
    """State that `step` keeps from one round of observations to the next. Times are monotonic, in seconds.

    `acting`: thresholds that had been met for their whole grace period at the last round. `since`: when each threshold
    that is met was first met. `pressed_at`: when each signal last met a threshold. `seen_at`: time of the last
    observation, by signal and place.
    """

    acting: frozenset[ThresholdKey] = frozenset()
    since: dict[ThresholdKey, float] = {}
    pressed_at: dict[str, float] = {}
    seen_at: dict[tuple[str, str], float] = {}


class ThresholdReading(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one round of observations. `state`: for the next call of `step`.

    `pressure`: for the node's conditions. `acting`: thresholds for which pods or images must be removed now, the most
    urgent first.
    """

    state: ThresholdState
    pressure: Pressure
    acting: tuple[MetThreshold, ...] = ()


def step(
    state: ThresholdState,
    thresholds: Iterable[Threshold],
    observations: Iterable[Observation],
    *,
    mono: float,
    hold_seconds: float = TRANSITION_SECONDS,
) -> ThresholdReading:
    """Compare one round of observations with the thresholds.

    `state`: from the previous round. `mono`: the current monotonic time in seconds. `hold_seconds`: see
    `TRANSITION_SECONDS`.
    """
    observed = tuple(observations)
    met = tuple(_met(thresholds, observed, state.acting))
    since = {crossing.key: state.since.get(crossing.key, mono) for crossing in met}
    ripe = tuple(
        crossing for crossing in met if mono - since[crossing.key] >= crossing.threshold.grace_seconds
    )
    pressed_at = {**state.pressed_at, **{crossing.threshold.signal: mono for crossing in met}}
    new = tuple(crossing for crossing in ripe if _is_news(state, crossing.observation))
    return ThresholdReading(
        state=ThresholdState(
            acting=frozenset(crossing.key for crossing in ripe),
            since=since,
            pressed_at=pressed_at,
            seen_at={(observation.signal, observation.place): observation.at for observation in observed},
        ),
        pressure=pressure_of(pressed_at, mono=mono, hold_seconds=hold_seconds),
        acting=tuple(sorted(new, key=_urgency)),
    )


def pressure_of(pressed_at: Mapping[str, float], *, mono: float, hold_seconds: float) -> Pressure:
    """Return the pressures to report: those observed less than `hold_seconds` before `mono`, or at `mono`.

    `pressed_at`: monotonic time at which each signal last met a threshold.
    """
    held = {name for name, at in pressed_at.items() if at == mono or mono - at < hold_seconds}
    return Pressure(memory=MEMORY in held, disk=bool(held & _DISK), pids=PIDS in held)


def parse_thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] | None = None,
    soft_grace_seconds: Mapping[str, float] | None = None,
    minimum_reclaim: Mapping[str, str] | None = None,
) -> tuple[Threshold, ...]:
    """Return the thresholds of a configuration. Thresholds that are off (see `is_off`) are left out.

    Every parameter has the eviction signal as its key. Raises InvalidConfig for an unknown signal, an invalid amount,
    or a soft threshold without a grace period.
    """
    graces, reclaims = soft_grace_seconds or {}, minimum_reclaim or {}
    _check("evictionHard", hard)
    _check("evictionSoft", soft or {})
    _check("evictionMinimumReclaim", reclaims)
    made = [
        Threshold(signal=name, amount=text, minimum_reclaim=reclaims.get(name, ""))
        for name, text in hard.items()
    ]
    for name, text in (soft or {}).items():
        if is_off(text):
            continue
        if name not in graces:
            raise InvalidConfig(
                field=f"evictionSoftGracePeriod.{name}",
                problem="is missing",
                fix="say how long the soft threshold must be met before pods are evicted",
            )
        made.append(
            Threshold(
                signal=name,
                amount=text,
                is_hard=False,
                grace_seconds=graces[name],
                minimum_reclaim=reclaims.get(name, ""),
            )
        )
    return tuple(threshold for threshold in made if not is_off(threshold.amount))


def is_off(text: str) -> bool:
    """Return True if the amount switches the threshold off: zero, 0 % or 100 %."""
    return amount_of(text, _WHOLE) in (0, _WHOLE) if text.endswith("%") else amount_of(text, _WHOLE) <= 0


def amount_of(text: str, capacity: int) -> int:
    """Convert the text of an amount, a quantity or a percentage of `capacity`, to a number; 0 for an empty text.

    Raises ValueError if it is neither, or a percentage outside 0 to 100.
    """
    if not text:
        return 0
    if not text.endswith("%"):
        return quantity.to_bytes(text)
    percent = float(text[:-1])
    if not 0 <= percent <= 100:
        raise ValueError("is not a percentage")
    return int(percent / 100 * capacity)


def _check(field: str, amounts: Mapping[str, str]) -> None:
    for name, text in amounts.items():
        if name not in SIGNALS:
            raise InvalidConfig(
                field=f"{field}.{name}",
                problem="is not a known signal",
                fix=f"use one of {', '.join(sorted(SIGNALS))}",
            )
        try:
            is_valid = amount_of(text, 1) >= 0
        except ValueError:
            is_valid = False
        if not is_valid:
            raise InvalidConfig(
                field=f"{field}.{name}", problem=f"{text!r} is not an amount", fix="write 100Mi or 10%"
            )


def _met(
    thresholds: Iterable[Threshold], observed: Iterable[Observation], acting: frozenset[ThresholdKey]
) -> Iterator[MetThreshold]:
    by_signal: dict[str, list[Observation]] = {}
    for observation in observed:
        by_signal.setdefault(observation.signal, []).append(observation)
    for threshold in thresholds:
        for observation in by_signal.get(threshold.signal, ()):
            candidate = MetThreshold(threshold=threshold, observation=observation)
            wanted = threshold.value(observation.capacity)
            if candidate.key in acting:
                wanted += amount_of(threshold.minimum_reclaim, observation.capacity)
            if observation.available < wanted:
                yield candidate


def _is_news(state: ThresholdState, observation: Observation) -> bool:
    before = state.seen_at.get((observation.signal, observation.place))
    return before is None or observation.at > before


def _urgency(met: MetThreshold) -> tuple[bool, bool, str, str]:
    """Return a sort key: memory before other signals, since it fills fastest; then hard thresholds before soft ones."""
    threshold = met.threshold
    return (
        threshold.signal != MEMORY,
        not threshold.is_hard,
        met.observation.place,
        threshold.signal,
    )
