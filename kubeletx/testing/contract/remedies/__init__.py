"""The contract suite for plugins' remedies (`kubeletx.api.Remedy`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeletx.api import Remedy, RemedyRequest, RemedyResult, RemedyState

from ..calls import plugin_of
from ..failures import about
from ..shared import Maker, NewObject, SuiteBase, answer_of, cancel_one_call

_MOST_LOOKS = 100


class RemedyContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.Remedy` must pass.

    Subclass it and define the fixtures `make_remedy`, `make_request` and `acts`.
    """

    @pytest.fixture
    def make_remedy(self) -> Callable[[], Remedy]:
        """Function that returns a new remedy, as the plugin's factory does. You must override this.

        All remedies of one test work with the same device, as those of two controllers do.
        """
        raise NotImplementedError("override the fixture make_remedy in your subclass of RemedyContract")

    @pytest.fixture
    def make_request(self) -> Callable[[str], RemedyRequest]:
        """Function that returns a request with this operation. Override it if the remedy needs parameters."""
        return lambda operation: RemedyRequest(operation=operation, node="node-1", node_uid="uid-1")

    @pytest.fixture
    def acts(self) -> Callable[[], int]:
        """Function that returns how often the device has acted in this test. You must override this."""
        raise NotImplementedError("override the fixture acts in your subclass of RemedyContract")

    @pytest.fixture
    def new_remedy(self, make_remedy: Callable[[], Remedy], maker: Maker) -> NewObject[Remedy]:
        """The function of `make_remedy`; calls of its remedies have time limits."""
        return maker.of(make_remedy, Remedy)

    async def test_an_operation_that_was_never_asked_for_has_not_started(
        self,
        new_remedy: NewObject[Remedy],
        make_request: Callable[[str], RemedyRequest],
        acts: Callable[[], int],
    ) -> None:
        assert await state_of(new_remedy(), make_request("op-1")) is RemedyState.NOT_STARTED
        assert acts() == 0, "status acted; it only looks"

    async def test_an_operation_asked_for_twice_acts_once(
        self,
        new_remedy: NewObject[Remedy],
        make_request: Callable[[str], RemedyRequest],
        acts: Callable[[], int],
    ) -> None:
        request, remedy = make_request("op-1"), new_remedy()
        assert await end_of(remedy, request) is RemedyState.DONE
        assert await end_of(remedy, request) is RemedyState.DONE
        assert await end_of(new_remedy(), request) is RemedyState.DONE
        assert acts() == 1, f"the device has acted {acts()} times for one operation"

    async def test_another_controller_sees_the_state(
        self, new_remedy: NewObject[Remedy], make_request: Callable[[str], RemedyRequest]
    ) -> None:
        request = make_request("op-1")
        await end_of(new_remedy(), request)
        assert await state_of(new_remedy(), request) is RemedyState.DONE

    @about("remedy")
    async def test_a_cancelled_call_leaves_a_state_and_acts_at_most_once(
        self,
        new_remedy: NewObject[Remedy],
        make_request: Callable[[str], RemedyRequest],
        acts: Callable[[], int],
    ) -> None:
        request, remedy = make_request("op-1"), new_remedy()
        await cancel_one_call(new_remedy.calls, "remedy", plugin_of(remedy).remedy, request)
        await end_of(remedy, request)
        assert acts() == 1, f"the device has acted {acts()} times for one operation"


async def state_of(remedy: Remedy, request: RemedyRequest) -> RemedyState:
    """Return the state of the operation."""
    result: RemedyResult = answer_of("status", await remedy.status(request), RemedyResult)
    return result.state


async def end_of(remedy: Remedy, request: RemedyRequest) -> RemedyState:
    """Ask for the operation and return its last state."""
    result: RemedyResult = answer_of("remedy", await remedy.remedy(request), RemedyResult)
    state = result.state
    for _ in range(_MOST_LOOKS):
        if state is not RemedyState.RUNNING:
            break
        state = await state_of(remedy, request)
    return state
