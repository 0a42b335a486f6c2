"""A runtime whose lists contain entries that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubeletx.testing import FakeRuntime


class BadEntriesRuntime(FakeRuntime):
    """Adds entries to `list_units`: None, bad ids, a label that is a number, and its first unit a second time."""

    async def list_units(self, match: Mapping[str, str]) -> Sequence[Any]:
        """Return the units, followed by the entries that cannot be used."""
        units: list[Any] = list(await super().list_units(match))
        if not units:
            return [None]
        first, change = units[0], msgspec.structs.replace
        bad_ids = ("", "a/b", "a\0b", "a\nb", "a" * 300, 7)
        worse = [change(first, id=bad_id) for bad_id in bad_ids]
        return [*units, None, *worse, change(first, id="labels", labels={"a": 1}), first]
