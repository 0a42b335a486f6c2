from __future__ import annotations

import asyncio

from kubeletx.runtimes.handles.calls import PrioritySemaphore


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_finishes_goes_before_who_begins() -> None:
    semaphore = PrioritySemaphore(1)
    await semaphore.acquire()
    order: list[str] = []

    async def wait(name: str, behind: bool) -> None:
        await semaphore.acquire(behind=behind)
        order.append(name)
        semaphore.release()

    tasks = [
        asyncio.create_task(wait(name, behind))
        for name, behind in (("begins", True), ("begins too", True), ("finishes", False))
    ]
    await settle()
    assert not semaphore.is_free
    semaphore.release()
    await asyncio.gather(*tasks)
    assert order == ["finishes", "begins", "begins too"]
    assert semaphore.is_free


async def test_no_more_than_the_limit_have_a_turn() -> None:
    semaphore = PrioritySemaphore(2)
    at_once = most = 0

    async def work() -> None:
        nonlocal at_once, most
        await semaphore.acquire(behind=True)
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        semaphore.release()

    await asyncio.gather(*(work() for _ in range(10)))
    assert most == 2


async def test_a_turn_is_not_lost_when_its_taker_is_cancelled() -> None:
    semaphore = PrioritySemaphore(1)
    await semaphore.acquire()
    waiting = asyncio.create_task(semaphore.acquire())
    given = asyncio.create_task(semaphore.acquire())
    await settle()
    waiting.cancel()
    await settle()
    semaphore.release()  # to the second, which is cancelled in the same moment
    given.cancel()
    await asyncio.gather(waiting, given, return_exceptions=True)
    assert waiting.cancelled()
    assert given.cancelled()
    assert semaphore.is_free
