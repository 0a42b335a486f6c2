"""`OutgoingStream`: messages that wait to be sent to one instance, in order and limited in number.

The limit keeps the memory of an instance that does not read, such as a frozen or hostile one, from growing: with a full
queue the stream ends, and the instance has to connect again.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .stubs import session_service_pb2 as pb


class OutgoingStream:
    """Queue of messages to one connection of an instance; iterate over it to take them. Ends once, see `end`."""

    def __init__(self, limit: int = 400) -> None:
        """`limit`: most messages that wait."""
        self._limit = limit
        self._waiting: deque[pb.SessionMessage] = deque()
        self._news = asyncio.Event()
        self._sent = 0
        self.is_ended = False

    def send(self, message: pb.SessionMessage) -> bool:
        """Queue a message and return True. Without an identifier it gets the next one (1, 2, ...).

        Returns False if the stream has ended. A full queue ends it.
        """
        if self.is_ended or len(self._waiting) >= self._limit:
            self.end()
            return False
        self._sent += 1
        message.messageIdentifier = message.messageIdentifier or str(self._sent)
        self._waiting.append(message)
        self._news.set()
        return True

    def end(self) -> None:
        """Drop waiting messages and end the iteration."""
        self.is_ended = True
        self._waiting.clear()
        self._news.set()

    def __aiter__(self) -> OutgoingStream:
        return self

    async def __anext__(self) -> pb.SessionMessage:
        while not self._waiting:
            if self.is_ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()
