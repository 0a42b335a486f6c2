"""Calls on threads of their own, and netlink as far as it goes without root; the rest a real network shows."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest
from kubeletx_libvirt.network.namespaces import OwnThreads
from kubeletx_libvirt.network.netlink import Netlink

from kubeletx.api import TimedOut, Unavailable


async def test_each_call_has_a_thread_of_its_own_that_ends_with_it() -> None:
    threads = OwnThreads()
    first = await threads.run("a call", threading.current_thread)
    second = await threads.run("a call", threading.current_thread)
    first.join(60)
    second.join(60)
    assert len({first, second, threading.main_thread()}) == 3
    assert not first.is_alive()
    assert not second.is_alive()


async def test_a_failure_says_what_was_done_and_why_it_failed() -> None:
    with pytest.raises(Unavailable, match="network: cannot enter pod u: No such file or directory"):
        await OwnThreads().run("cannot enter pod u", os.open, "/nowhere/at/all", os.O_RDONLY)
    with pytest.raises(ValueError, match="invalid literal"):
        await OwnThreads().run("cannot count", int, "x")


async def test_a_cancelled_caller_waits_until_its_thread_has_ended() -> None:
    began, goes_on = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        began.set()
        goes_on.wait(60)
        ended.append(True)

    caller = asyncio.create_task(OwnThreads().run("a call", work))
    await asyncio.to_thread(began.wait, 60)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_a_call_that_does_not_end_is_not_waited_for_for_ever() -> None:
    goes_on = threading.Event()
    with pytest.raises(TimedOut, match=r"network: cannot look: not done within 0\.01 s"):
        await OwnThreads(seconds=0.01).run("cannot look", goes_on.wait, 60)
    goes_on.set()


def test_netlink_reports_the_devices_of_this_namespace() -> None:
    with Netlink() as node:
        devices = node.list_devices()
        assert {name: one.index for name, one in devices.items()} == {n: i for i, n in socket.if_nameindex()}
        assert node.get_index("lo") == devices["lo"].index
        assert devices["lo"].master == 0


def test_a_refused_request_names_the_device_and_the_next_one_works() -> None:
    with Netlink() as node:
        with pytest.raises(OSError, match="find kxnone: No such device"):
            node.get_index("kxnone")
        assert node.get_index("lo") == 1
