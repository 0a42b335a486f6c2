"""The contract suite for plugins' admission checks (`kubeletx.api.AdmissionCheck`)."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kubeletx.api import AdmissionCheck, Allow, Refuse

from .calls import plugin_of
from .failures import about
from .shared import Maker, NewObject, SuiteBase, answer_of, cancel_one_call


class AdmissionCheckContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.AdmissionCheck` must pass.

    Subclass it and define the fixtures `make_check` and `refused_pod`. Define `allowed_pod`, too, if the check
    does not allow the default.
    """

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

    @pytest.fixture
    def new_check(self, make_check: Callable[[], AdmissionCheck], maker: Maker) -> NewObject[AdmissionCheck]:
        """The function of `make_check`; calls of its checks have time limits."""
        return maker.of(make_check, AdmissionCheck)

    async def test_it_allows(
        self, new_check: NewObject[AdmissionCheck], allowed_pod: Mapping[str, Any]
    ) -> None:
        await allows(new_check(), allowed_pod)

    async def test_a_refusal_has_a_reason_of_one_word_and_one_line_for_people(
        self, new_check: NewObject[AdmissionCheck], refused_pod: Mapping[str, Any]
    ) -> None:
        answer = await review(new_check(), refused_pod)
        assert isinstance(answer, Refuse), "the check allowed refused_pod"
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,62}", answer.reason), f"reason is {answer.reason!r}"
        assert answer.message.strip(), "message is empty"
        assert "\n" not in answer.message, f"message has more than one line: {answer.message!r}"

    async def test_it_leaves_the_pod_as_it_is(
        self,
        new_check: NewObject[AdmissionCheck],
        allowed_pod: Mapping[str, Any],
        refused_pod: Mapping[str, Any],
    ) -> None:
        check = new_check()
        for pod in (allowed_pod, refused_pod):
            before = copy.deepcopy(pod)
            await review(check, pod)
            assert pod == before, "review changed the pod"

    async def test_pods_that_come_at_once_get_their_own_answers(
        self,
        new_check: NewObject[AdmissionCheck],
        allowed_pod: Mapping[str, Any],
        refused_pod: Mapping[str, Any],
    ) -> None:
        check = new_check()
        answers = await asyncio.gather(
            *(review(check, pod) for pod in (allowed_pod, refused_pod, allowed_pod, refused_pod))
        )
        assert [type(answer) for answer in answers] == [Allow, Refuse, Allow, Refuse]

    async def test_the_same_pod_gets_the_same_answer(
        self, new_check: NewObject[AdmissionCheck], refused_pod: Mapping[str, Any]
    ) -> None:
        check = new_check()
        assert await review(check, refused_pod) == await review(check, refused_pod)

    @about("review")
    async def test_it_can_be_cancelled_and_decides_afterwards(
        self, new_check: NewObject[AdmissionCheck], allowed_pod: Mapping[str, Any]
    ) -> None:
        check = new_check()
        await cancel_one_call(new_check.calls, "review", plugin_of(check).review, allowed_pod)
        await allows(check, allowed_pod)


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
    """Return the check's answer about `pod`."""
    answer: Allow | Refuse = answer_of("review", await check.review(pod), Allow, Refuse)
    return answer


async def allows(check: AdmissionCheck, pod: Mapping[str, Any]) -> None:
    """Fail the test unless the check allows `pod`."""
    answer = await review(check, pod)
    assert isinstance(answer, Allow), f"the check refused allowed_pod: {answer}"
