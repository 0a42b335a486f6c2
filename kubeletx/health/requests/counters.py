"""Images and counters of the controller: it activates an image, and a changed counter asks for a retry or for the other image.

The first value ever is only stored. A change is stored before it acts; one that cannot act yet is not stored, so it is pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ..config import HealthSettings, merge
from ..inbox import Inbox
from ..model import Effect, Order, SlotState, SlotTable
from ..orders import FailedImage, decide_image
from ..topics import BaseOsConfig

RETRY: Final = "RetryUpdateCounter/"
"""Prefix of a stored counter; the version of the image follows."""


_ITEM: Final = "force.fallback.counter"


def fallback_counters(inbox: Inbox, own: HealthSettings) -> dict[str, int | str | None]:
    """Return the counters of forced fallbacks by source. `own`: settings without the controller's."""
    theirs = merge(HealthSettings(), {_ITEM: inbox.items.get(_ITEM)}, lambda _: None)
    return {
        "ForceFallbackCounter": inbox.fallback_counter,
        "ConfigItemValueMap": theirs.items.get(_ITEM),
        _ITEM: own.items.get(_ITEM),
    }


def take_cancelled(inbox: Inbox, table: SlotTable) -> tuple[Effect, ...]:
    """Return what is done because the controller has removed an image."""
    images, inbox.cancelled = inbox.cancelled, []
    is_cancelled = any(image.base_os_version == table.other.version for image in images)
    return _effects("cancel", table, None) if is_cancelled else ()


def kept_activation(
    activated: str, images: Collection[BaseOsConfig], cancelled: Iterable[BaseOsConfig]
) -> str:
    """Return `activated`, the version that was installed last because of Activate; empty: the controller has withdrawn it."""
    is_removed = activated in {image.base_os_version for image in cancelled}
    # Without images, the controller's agent may not have started since the boot.
    is_withdrawn = images and activated not in _active(images)
    return "" if is_removed or is_withdrawn else activated


def find_activated(images: Collection[BaseOsConfig], table: SlotTable, activated: str) -> str:
    """Return the version in the other slot if the controller wants to boot it (transition 1 of EVE), otherwise empty.

    An image is installed once: a version that went back is not installed again until the controller changes it.
    """
    wanted, version = _active(images), table.other.version
    return version if version in wanted - {activated} and table.current.version not in wanted else ""


def _active(images: Iterable[BaseOsConfig]) -> set[str]:
    return {image.base_os_version for image in images if image.activate and image.base_os_version}


def take_counters(
    stored: Mapping[str, int],
    fallback: Mapping[str, int | str | None],
    images: Iterable[BaseOsConfig],
    table: SlotTable,
    failed: FailedImage | None,
) -> tuple[dict[str, int], tuple[Effect, ...]]:
    """Return the counters to store, and the effects on the slots of the first changed counter that may act.

    `fallback`: see `fallback_counters`; None if a source has none. The same number from a second source does
    not act again.
    """
    images = [image for image in images if image.base_os_version]
    versions = {slot.version for slot in table.slots} | {image.base_os_version for image in images}
    kept = {
        name: value
        for name, value in stored.items()
        if not name.startswith(RETRY) or name.removeprefix(RETRY) in versions
    }
    for name, value in fallback.items():
        if not isinstance(value, int) or kept.get(name) == value:
            continue
        others = {kept.get(source) for source in fallback if source != name}
        acts = name in kept and value not in others
        effects = _effects("force-fallback", table, failed) if acts else ()
        if effects or not acts:
            kept[name] = value
        if effects:
            return kept, effects
    for image in images:
        name, value = RETRY + image.base_os_version, image.retry_update_counter
        if kept.get(name) == value:
            continue
        current = table.current
        is_committed = current.version == image.base_os_version and current.state is SlotState.ACTIVE
        acts = name in kept and not is_committed
        is_asked = acts and image.activate and table.other.version == image.base_os_version
        effects = _effects("retry", table, failed) if is_asked else ()
        if effects or not acts:
            kept[name] = value
        if effects:
            return kept, effects
    return kept, ()


def _effects(verb: str, table: SlotTable, failed: FailedImage | None) -> tuple[Effect, ...]:
    return decide_image(Order(id="", verb=verb, label=table.other.label), table, failed).effects
