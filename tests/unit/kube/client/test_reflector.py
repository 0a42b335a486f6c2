"""A reflector's set is the server's set, whatever happens to its lists and watches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from aiohttp import web

from kubeletx.kube.client import KubeClient, Reflector
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import ObjectMeta, Pod
from kubeletx.testing.clock import FakeClock
from tests.unit.kube.client.scripted_server import (
    GONE,
    TOO_LARGE,
    Script,
    bookmark,
    lines,
    pod,
    pod_list,
    serve,
)


class Set:
    """What a sink was told, as a set of names to resource versions."""

    def __init__(self) -> None:
        self.pods: dict[str, str] = {}
        self.spoilt: list[str] = []
        self.replaced = 0

    def replace(self, items: Sequence[Pod], unreadable: Sequence[ObjectMeta]) -> None:
        kept = {meta.name: self.pods.get(meta.name, "?") for meta in unreadable}
        self.pods = {one.name: one.metadata.resource_version for one in items} | kept
        self.replaced += 1

    def put(self, item: Pod) -> None:
        self.pods[item.name] = item.metadata.resource_version

    def drop(self, item: Pod) -> None:
        self.pods.pop(item.name, None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        self.spoilt.append(meta.name)


async def follow(script: Script) -> tuple[Set, Reflector[Pod]]:
    """Run a reflector until the script has nothing left to say."""
    found, clock = Set(), FakeClock(auto_advance=True)
    async with serve(script) as access:
        client = KubeClient(access, clock=clock)
        reflector = Reflector(
            client, PODS, Pod, found, clock=clock, field_selector="spec.nodeName=n", draw=random.Random(1)
        )
        task = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(60):
                await script.idle.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
    return found, reflector


def versions(script: Script) -> list[tuple[str, str]]:
    """(list or watch, resource version) of every request."""
    return [("watch" if "watch" in q else "list", q.get("resourceVersion", "")) for q in script.asked]


async def test_a_watch_goes_on_from_the_list_and_the_next_from_the_last_event() -> None:
    script = Script()
    script.lists = [pod_list(3, pod("a", 1), pod("b", 2))]
    script.watches = [
        lines(("ADDED", pod("c", 4)), ("MODIFIED", pod("a", 5))),
        lines(("DELETED", pod("b", 6)), bookmark(9)),
    ]
    found, _ = await follow(script)
    assert found.pods == {"a": "5", "c": "4"}
    assert versions(script) == [("list", "0"), ("watch", "3"), ("watch", "5"), ("watch", "9")]
    assert all(query["fieldSelector"] == "spec.nodeName=n" for query in script.asked)


@pytest.mark.parametrize("kept", range(0, 260, 13))
async def test_a_watch_that_is_cut_anywhere_loses_nothing(kept: int) -> None:
    first, second = pod("b", 4), pod("c", 5)
    whole = lines(("ADDED", first), ("ADDED", second))
    kept = min(kept, len(whole))
    seen = whole[:kept].count(b"\n")
    script = Script()
    script.lists = [pod_list(3, pod("a", 1)), pod_list(6, pod("a", 1), first, second)]
    script.watches = [whole[:kept]]
    script.cut = {1}
    found, _ = await follow(script)
    assert found.pods == {"a": "1", "b": "4", "c": "5"}
    assert versions(script)[2] == ("list", str(3 + seen))


@pytest.mark.parametrize("answer", [GONE, TOO_LARGE])
@pytest.mark.parametrize("as_event", [True, False])
async def test_a_version_that_the_server_does_not_have_is_listed_again(answer: dict, as_event: bool) -> None:  # type: ignore[type-arg]
    script = Script()
    script.lists = [pod_list(900, pod("a", 1)), pod_list(3, pod("b", 2))]
    script.watches = [lines(("ERROR", answer)) if as_event else (answer["code"], answer)]
    found, _ = await follow(script)
    assert found.pods == {"b": "2"}
    assert versions(script) == [("list", "0"), ("watch", "900"), ("list", ""), ("watch", "3")]


async def test_a_server_that_is_away_costs_nothing_but_time() -> None:
    script = Script()
    down = (503, {"kind": "Status", "code": 503, "message": "etcd is down"})
    script.lists = [down, pod_list(3, pod("a", 1)), down, down, pod_list(8, pod("a", 7))]
    script.watches = [(500, {"message": "sad"}), lines(bookmark(8))]
    found, reflector = await follow(script)
    assert found.pods == {"a": "7"}
    assert [version for kind, version in versions(script) if kind == "list"] == ["0", "0", "3", "3", "3"]
    assert reflector.problem == ""


async def test_a_server_that_came_back_older_is_listed_again_without_another_wait() -> None:
    pauses: list[float] = []

    class Patient(KubeClient):
        async def pause(self, seconds: float) -> None:
            pauses.append(seconds)
            await super().pause(seconds)

    class Timed(Script):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            before.append(len(pauses))
            return await super().answer(request)

    before: list[int] = []
    script, found, clock = Timed(), Set(), FakeClock(auto_advance=True)
    down = (503, {"kind": "Status", "code": 503, "message": "etcd is down"})
    script.lists = [pod_list(900, pod("a", 1)), *[down] * 8, (504, TOO_LARGE), pod_list(3, pod("b", 2))]
    script.watches = [(500, {"message": "sad"})]
    async with serve(script) as access:
        client = Patient(access, clock=clock)
        reflector = Reflector(client, PODS, Pod, found, clock=clock)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(60):
            await script.idle.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
    assert found.pods == {"b": "2"}
    assert versions(script)[-3:] == [("list", "900"), ("list", ""), ("watch", "3")]
    assert before[-3:] == [9, 9, 9], "the server was waited for, not the list"


async def test_pages_are_one_set_and_an_expired_page_begins_again() -> None:
    script = Script()
    script.lists = [
        (410, GONE),
        pod_list(4, pod("a", 1), more="token"),
        (410, GONE),
        pod_list(5, pod("a", 1), pod("b", 2), more=""),
    ]
    found, _ = await follow(script)
    assert found.pods == {"a": "1", "b": "2"}
    assert found.replaced == 1
    assert [("limit" in query, query.get("continue", "")) for query in script.asked[:4]] == [
        (False, ""),
        (True, ""),
        (True, "token"),
        (False, ""),
    ]


async def test_a_pod_that_cannot_be_read_is_named_and_the_others_go_on() -> None:
    bad = pod("bad", 2, containers="none")
    script = Script()
    script.lists = [pod_list(3, pod("a", 1), bad)]
    script.watches = [
        lines(("MODIFIED", bad | {"metadata": pod("bad", 4)["metadata"]}), ("ADDED", pod("c", 5)))
    ]
    found, _ = await follow(script)
    assert found.pods == {"a": "1", "bad": "?", "c": "5"}
    assert found.spoilt == ["bad", "bad"]
    assert versions(script)[-1] == ("watch", "5")


NO_LISTS = [
    {},
    {"kind": "Status", "metadata": {}, "status": "Success"},
    {"metadata": {"resourceVersion": "7"}, "items": []},
    {"kind": "PodList", "items": []},
    {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"uid": 5}}]},
]


@pytest.mark.parametrize("answer", NO_LISTS)
async def test_an_answer_that_is_not_a_list_is_not_taken_for_an_empty_one(answer: dict[str, object]) -> None:
    script = Script()
    script.lists = [answer, pod_list(3, pod("a", 1))]
    found, _ = await follow(script)
    assert found.pods == {"a": "1"}
    assert found.replaced == 1


@pytest.mark.parametrize("answer", NO_LISTS)
async def test_an_answer_that_is_not_a_list_removes_no_pod_later(answer: dict[str, object]) -> None:
    script = Script()
    script.lists = [pod_list(3, pod("a", 1)), answer, pod_list(8, pod("a", 1))]
    script.watches = [(500, {"message": "sad"})]
    found, _ = await follow(script)
    assert found.pods == {"a": "1"}
    assert found.replaced == 2


async def test_a_pod_with_unreadable_metadata_still_counts_as_there() -> None:
    bad = pod("bad", 2)
    bad["metadata"]["creationTimestamp"] = "yesterday"
    script = Script()
    script.lists = [pod_list(3, pod("a", 1), bad)]
    script.watches = [lines(("MODIFIED", bad), ("ADDED", pod("c", 5)))]
    found, _ = await follow(script)
    assert found.pods == {"a": "1", "bad": "?", "c": "5"}
    assert found.spoilt == ["bad", "bad"]


async def test_a_pod_with_bytes_that_are_not_utf8_is_named_and_the_others_go_on() -> None:
    bad = pod("bad", 4, nodeName="BYTES")
    script = Script()
    script.lists = [pod_list(3, pod("a", 1))]
    script.watches = [lines(("ADDED", bad), ("ADDED", pod("c", 5))).replace(b"BYTES", b"\xff")]
    found, _ = await follow(script)
    assert found.pods == {"a": "1", "c": "5"}
    assert found.spoilt == ["bad"]
    assert versions(script)[-1] == ("watch", "5")


async def test_a_deletion_that_cannot_be_read_is_seen_by_a_whole_list() -> None:
    script = Script()
    script.lists = [pod_list(3, pod("a", 1), pod("b", 2)), pod_list(5, pod("a", 1))]
    script.watches = [lines(("DELETED", pod("b", 4, containers="none")))]
    found, _ = await follow(script)
    assert found.pods == {"a": "1"}
    assert versions(script) == [("list", "0"), ("watch", "3"), ("list", ""), ("watch", "5")]


async def test_a_watch_without_an_end_or_an_answer_is_not_a_reason_to_spin() -> None:
    script = Script()
    script.lists = [pod_list(3)] * 4
    script.watches = [b"", b"", b""]
    await follow(script)
    assert versions(script).count(("list", "3")) == 3, "an empty watch is a failure, and waited for"
