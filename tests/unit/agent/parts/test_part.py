from __future__ import annotations

import pytest

from kubeletx.agent.parts.part import Composition, Part
from kubeletx.api import AlreadyExists, PodUid
from kubeletx.kube.types.core import Container, Pod, VirtualMachine
from kubeletx.pods import Evacuation, UnitExtras


async def nothing(_pod: Pod, _container: Container | VirtualMachine) -> UnitExtras:
    return UnitExtras()


async def test_providers_of_extras_of_all_parts_are_one_live_table() -> None:
    async with Composition() as made:
        extras = made.extras
        made.add(Part(name="sessions", extras={"sessions": nothing}))
        made.add(Part(name="web", extras={"web": nothing}))
        assert sorted(extras) == ["sessions", "web"]


async def test_a_second_provider_of_one_name_is_refused() -> None:
    async with Composition() as made:
        made.add(Part(name="one", extras={"sessions": nothing}))
        with pytest.raises(
            AlreadyExists, match=r"part two: another part already has .* named sessions; rename"
        ):
            made.add(Part(name="two", extras={"sessions": nothing}))


async def test_hooks_of_evacuation_are_one_live_list() -> None:
    async def run(_uid: PodUid, _deadline: float) -> None:
        pass

    hook = Evacuation(is_needed=lambda _uid: True, run=run)
    async with Composition() as made:
        evacuations = made.evacuations
        made.add(Part(name="sessions", evacuation=hook))
        assert evacuations == [hook]
