"""The bounded thread pool, with both policies."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubeletx.api import BoundedThreadPool, Unavailable, WhenFull


async def test_results_and_exceptions_come_back() -> None:
    pool = BoundedThreadPool("x")
    assert await pool.run(lambda a, b: a + b, 1, b=2) == 3
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(next, iter(()))
    pool.close()
    with pytest.raises(Unavailable, match="closed"):
        await pool.run(int)


async def test_a_hung_call_keeps_its_slot_and_no_slot_means_unavailable_at_once() -> None:
    pool = BoundedThreadPool("x", threads=2)
    release = threading.Event()
    hung = [asyncio.create_task(pool.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="all 2 threads hang"):
        await pool.run(int)
    hung[0].cancel()
    await asyncio.gather(hung[0], return_exceptions=True)
    assert pool.busy == 2
    with pytest.raises(Unavailable):
        await pool.run(int)
    release.set()
    assert await hung[1] is True
    async with asyncio.timeout(60):
        while pool.busy:
            await asyncio.sleep(0)
    assert await pool.run(int) == 0
    pool.close()


async def test_a_patient_pool_serves_more_calls_than_it_has_threads_in_their_order() -> None:
    pool = BoundedThreadPool("x", threads=2, patience_seconds=60.0)
    release = threading.Event()
    order: list[int] = []
    hung = [asyncio.create_task(pool.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(pool.run(order.append, number)) for number in range(20)]
    cancelled = others.pop(3)
    await asyncio.sleep(0)
    cancelled.cancel()
    assert order == []
    release.set()
    await asyncio.gather(*hung, *others)
    assert sorted(order) == [0, 1, 2, *range(4, 20)]
    late = [asyncio.create_task(pool.run(order.append, number)) for number in range(100, 140)]
    await asyncio.gather(*late)
    assert pool.busy == 0
    pool.close()
    with pytest.raises(Unavailable, match="closed"):
        await pool.run(int)


async def test_a_patient_pool_refuses_a_call_when_its_threads_hang() -> None:
    pool = BoundedThreadPool("x", threads=1, patience_seconds=0.01)
    release = threading.Event()
    hung = asyncio.create_task(pool.run(release.wait))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="all 1 threads hang"):
        await pool.run(int)
    release.set()
    await hung
    assert await pool.run(int) == 0
    pool.close()


async def test_a_granted_thread_of_a_cancelled_call_goes_to_the_next_one() -> None:
    pool = BoundedThreadPool("x", threads=1, patience_seconds=60.0)
    release = threading.Event()
    hung = asyncio.create_task(pool.run(release.wait))
    await asyncio.sleep(0)
    first, second = (asyncio.create_task(pool.run(int)) for _ in range(2))
    await asyncio.sleep(0)
    hung.add_done_callback(lambda _: first.cancel())  # in the turn in which it gets the thread
    release.set()
    assert await second == 0
    assert await hung
    await asyncio.gather(first, return_exceptions=True)
    assert await pool.run(int) == 0
    pool.close()


async def test_threads_are_daemons_with_the_runtimes_name() -> None:
    pool = BoundedThreadPool("kvm")
    thread = await pool.run(threading.current_thread)
    assert thread.daemon
    assert thread.name == "kvm-1"
    assert await pool.run(threading.current_thread) is thread
    pool.close()


async def test_a_pool_that_waits_serves_calls_in_their_order_and_may_be_used_after_its_close() -> None:
    pool = BoundedThreadPool("x", threads=1, when_full=WhenFull.WAIT)
    release = threading.Event()
    order: list[int] = []
    first = asyncio.create_task(pool.run(release.wait))
    others = [asyncio.create_task(pool.run(order.append, number)) for number in range(3)]
    await asyncio.sleep(0)
    assert pool.busy == 4
    release.set()
    await asyncio.gather(first, *others)
    assert order == [0, 1, 2]
    pool.close()
    assert await pool.run(int) == 0
    pool.close()


async def test_a_cancelled_caller_of_finish_waits_for_the_end_of_the_call_and_may_stop_it() -> None:
    pool = BoundedThreadPool("x", when_full=WhenFull.WAIT)
    stop = threading.Event()
    began = threading.Event()
    ended: list[bool] = []

    def work() -> None:
        began.set()
        ended.append(stop.wait(60))

    task = asyncio.create_task(pool.finish_or_stop(stop, work))
    await pool.run(began.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    pool.close()


async def test_a_second_cancellation_does_not_end_the_wait_for_the_call() -> None:
    pool = BoundedThreadPool("x", when_full=WhenFull.WAIT)
    began, go = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        began.set()
        ended.append(go.wait(60))

    task = asyncio.create_task(pool.finish(work))
    await pool.run(began.wait, 60)
    for _ in range(2):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    pool.close()
