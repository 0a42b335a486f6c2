"""What the tests of API servers share: a node, pods, events of a watch."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import Of
from kubeletx_testing.waiting import block_until

GUARD_SECONDS = 60.0
Event = dict[str, Any]


class NodeUnderTest:
    """A registered node and the client of its agent."""

    def __init__(self, name: str, client: ApiClient) -> None:
        self.name = name
        self.client = client
        self.value = client.create("nodes", {"metadata": {"name": name}})
        self.uid: str = self.value["metadata"]["uid"]


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod with one container ``c``."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec}}


def refusal(error: pytest.ExceptionInfo[StatusError]) -> tuple[int, str, str]:
    """Code, reason and message."""
    return error.value.code, error.value.reason, error.value.message


class Watching:
    """A watch in a thread of its own, until the server ends it or `close`."""

    def __init__(self, client: ApiClient, plural: Of, namespace: str = "", **query: str) -> None:
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._problem: BaseException | None = None
        self._socket: socket.socket | None = None
        self._stream = client.watch(plural, namespace, opened=self._opened, **query)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def take(self, count: int) -> list[Event]:
        """The first events, as soon as there are so many."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self._events) >= count, GUARD_SECONDS)
            assert enough, f"{len(self._events)} events: {self._events} {self._problem}"
            return self._events[:count]

    def names(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the first events."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.take(count)]

    def end(self) -> list[Event]:
        """All events of a watch that ends by itself."""
        self._thread.join(GUARD_SECONDS)
        assert not self._thread.is_alive()
        if self._problem is not None:
            raise self._problem
        return self._events

    def close(self) -> None:
        """End the watch and its thread."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._socket is not None or not self._thread.is_alive(), GUARD_SECONDS
            )
        if self._socket is not None and self._thread.is_alive():
            # Not the method of the TLS socket, which the thread is reading from.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._thread.join(GUARD_SECONDS)

    def _opened(self, connection: socket.socket) -> None:
        with self._changed:
            self._socket = connection
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            for event in self._stream:
                with self._changed:
                    self._events.append(event)
                    self._changed.notify_all()
        except (OSError, StatusError, ValueError) as err:
            self._problem = err


Watch = Callable[..., Watching]
"""The arguments of `Watching`."""


def version_now(client: ApiClient, plural: str, namespace: str = "") -> str:
    """The version of a list made now."""
    version: str = client.list(plural, namespace)["metadata"]["resourceVersion"]
    return version


def wait_until_allowed(node: NodeUnderTest, plural: str, name: str, namespace: str) -> None:
    """Wait until the node may read an object: a real authorizer learns of a new pod a moment later."""

    def is_allowed() -> bool:
        try:
            node.client.get(plural, name, namespace)
        except StatusError as err:
            if err.code != 403:
                raise
            return False
        return True

    block_until(is_allowed)
