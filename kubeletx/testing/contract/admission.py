"""The contract suite for plugins' admission checks (`kubeletx.api.AdmissionCheck`)."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kubeletx.api import AdmissionCheck, Allow, Refuse

from .held import never_blocks

TIMEOUT_SECONDS = 5.0
"""The agent's default for ``kubeletx.pluginAdmissionCheckTimeout``."""


class AdmissionCheckContract:
    """Tests that every implementation of `kubeletx.api.AdmissionCheck` must pass.

    Subclass it and define the fixtures `make_check` and `refused_pod`. Define `allowed_pod`, too, if the check
    does not allow the default.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_check(self) -> Callable[[], AdmissionCheck]:
        """Function that returns a new check, as the plugin's factory does. You must override this."""
        raise NotImplementedError(
            "override the fixture make_check in your subclass of AdmissionCheckContract"
        )

    @pytest.fixture
    def allowed_pod(self) -> Mapping[str, Any]:
        """A pod that the check allows. Override this if the check does not allow the default, `a_pod()`."""
        return a_pod()

    @pytest.fixture
    def refused_pod(self) -> Mapping[str, Any]:
        """A pod that the check refuses. You must override this."""
        raise NotImplementedError(
            "override the fixture refused_pod in your subclass of AdmissionCheckContract"
        )

    async def test_it_allows(
        self, make_check: Callable[[], AdmissionCheck], allowed_pod: Mapping[str, Any]
    ) -> None:
        assert isinstance(await review(make_check(), allowed_pod), Allow)

    async def test_a_refusal_has_a_reason_of_one_word_and_one_line_for_people(
        self, make_check: Callable[[], AdmissionCheck], refused_pod: Mapping[str, Any]
    ) -> None:
        answer = await review(make_check(), refused_pod)
        assert isinstance(answer, Refuse)
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,62}", answer.reason)
        assert answer.message.strip()
        assert "\n" not in answer.message

    async def test_it_leaves_the_pod_as_it_is(
        self,
        make_check: Callable[[], AdmissionCheck],
        allowed_pod: Mapping[str, Any],
        refused_pod: Mapping[str, Any],
    ) -> None:
        check = make_check()
        for pod in (allowed_pod, refused_pod):
            before = copy.deepcopy(pod)
            await review(check, pod)
            assert pod == before

    async def test_pods_that_come_at_once_get_their_own_answers(
        self,
        make_check: Callable[[], AdmissionCheck],
        allowed_pod: Mapping[str, Any],
        refused_pod: Mapping[str, Any],
    ) -> None:
        check = make_check()
        answers = await asyncio.gather(
            *(review(check, pod) for pod in (allowed_pod, refused_pod, allowed_pod, refused_pod))
        )
        assert [type(one) for one in answers] == [Allow, Refuse, Allow, Refuse]

    async def test_the_same_pod_gets_the_same_answer(
        self, make_check: Callable[[], AdmissionCheck], refused_pod: Mapping[str, Any]
    ) -> None:
        check = make_check()
        assert await review(check, refused_pod) == await review(check, refused_pod)

    async def test_it_can_be_cancelled_and_decides_afterwards(
        self, make_check: Callable[[], AdmissionCheck], allowed_pod: Mapping[str, Any]
    ) -> None:
        check = make_check()
        task = asyncio.create_task(_review(check, allowed_pod), name="review")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_SECONDS)
        assert task.done(), "it goes on after its cancellation"
        assert isinstance(await review(check, allowed_pod), Allow)


def a_pod(*images: str, namespace: str = "default", name: str = "web") -> dict[str, Any]:
    """Return a pod with one container for each image, as the agent passes it to an admission check."""
    containers = [
        {"name": f"c{number}", "image": image} for number, image in enumerate(images or ("busybox",))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": {"containers": containers},
    }


async def review(check: AdmissionCheck, pod: Mapping[str, Any]) -> Allow | Refuse:
    """Return the check's answer about `pod`.

    Fails the test if the answer takes longer than `TIMEOUT_SECONDS`, or if the check blocks the event loop.
    """
    async with asyncio.timeout(TIMEOUT_SECONDS):
        answer = await never_blocks(check.review(pod), "review")
    assert isinstance(answer, Allow | Refuse)
    return answer


async def _review(check: AdmissionCheck, pod: Mapping[str, Any]) -> Allow | Refuse:
    return await check.review(pod)
