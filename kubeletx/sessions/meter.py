"""`PodMeter`: divides the usage of one pod among its open sessions. Pure.

Sessions that are open at the same time share equally. Between two readings of the pod's counters its usage counts as
even: a session that was open for half of that time, as one of two, gets a quarter. Time without an open session is not
attributed. A frozen pod uses no CPU, so its sessions get memory only.
"""

from __future__ import annotations

import msgspec


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """End of one container's log. `file`: relative to the pod's log directory. `offset`: its size in bytes.

    `inode`: number of the file; rotation renames the file and keeps the number.
    """

    container: str
    file: str
    inode: int
    offset: int


class PodReading(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a pod at one time. `cpu_seconds`: since the pod began. None: not measured.

    `memory_bytes`: its working set. `logs`: one position for each container that has a log.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    logs: tuple[LogPosition, ...] = ()


class SessionCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one session, or the sum of several. `opened`: number of sessions.

    `client_seconds`: seconds of all clients together. `memory_byte_seconds`: bytes multiplied by seconds.
    """

    opened: int = 0
    open_seconds: float = 0.0
    client_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0

    def plus(self, other: SessionCosts) -> SessionCosts:
        """Return the sum."""
        return SessionCosts(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class PodMeter:
    """Meter of one pod. Times are seconds of one clock; an earlier time than before counts as the same."""

    def __init__(self, at: float, reading: PodReading | None = None) -> None:
        """`reading`: counters at the time `at`; None: unknown, so attribution begins with the first reading."""
        self.reading = reading
        self._at = self._read_at = at
        self._clients: dict[str, int] = {}
        """Number of clients of each open session."""
        self._shares: dict[str, float] = {}
        """Seconds of the pod that each session got since the last reading of its CPU."""
        self._memory_shares: dict[str, float] = {}
        """The same since the last reading."""
        self._costs: dict[str, SessionCosts] = {}

    def open(self, key: str, at: float, *, clients: int = 0, opened: int = 1) -> None:
        """Add an open session. `opened` 0: it was counted before.

        For time that is earlier than the meter's, it gets no CPU and memory.
        """
        self._advance(at)
        before = self._at - at
        self._clients[key] = clients
        self._shares.setdefault(key, 0.0)
        self._memory_shares.setdefault(key, 0.0)
        self._add(key, SessionCosts(opened=opened, open_seconds=before, client_seconds=before * clients))

    def set_clients(self, key: str, at: float, clients: int) -> None:
        """Change the number of clients of an open session."""
        self._advance(at)
        self._clients[key] = clients

    def close(self, key: str, at: float) -> None:
        """End a session; it gets its share of CPU and memory with the next reading."""
        self._advance(at)
        self._clients.pop(key, None)

    def read(self, reading: PodReading, at: float) -> bool:
        """Attribute the usage between the last reading and this one. A counter that fell counts as unchanged.

        Returns False if the reading lacks the CPU, which was measured before: the next one has it for all sessions.
        """
        self._advance(at)
        before, whole = self.reading, self._at - self._read_at
        if before is not None and whole <= 0:
            return True
        self.reading = _newest(before, reading)
        if before is not None:
            memory = _mean(before.memory_bytes, reading.memory_bytes)
            for key, share in self._memory_shares.items():
                self._add(key, SessionCosts(memory_byte_seconds=memory * share))
        self._memory_shares = dict.fromkeys(self._clients, 0.0)
        if before is not None and before.cpu_seconds is not None:
            if reading.cpu_seconds is None:
                return False
            cpu = max(0.0, reading.cpu_seconds - before.cpu_seconds)
            for key, share in self._shares.items():
                self._add(key, SessionCosts(cpu_seconds=cpu * share / whole))
        self._read_at = self._at
        self._shares = dict.fromkeys(self._clients, 0.0)
        return True

    def take(self) -> dict[str, SessionCosts]:
        """Return the usage of each session since the last call."""
        costs, self._costs = self._costs, {}
        return costs

    def _advance(self, at: float) -> None:
        seconds = at - self._at
        if seconds <= 0:
            return
        self._at = at
        for key, clients in self._clients.items():
            self._add(key, SessionCosts(open_seconds=seconds, client_seconds=seconds * clients))
            self._shares[key] += seconds / len(self._clients)
            self._memory_shares[key] += seconds / len(self._clients)

    def _add(self, key: str, costs: SessionCosts) -> None:
        self._costs[key] = self._costs.get(key, SessionCosts()).plus(costs)


def _mean(before: int | None, now: int | None) -> float:
    known = [value for value in (before, now) if value is not None]
    return sum(known) / len(known) if known else 0.0


def _newest(before: PodReading | None, now: PodReading) -> PodReading:
    """Return `now`, with the values of `before` where nothing was measured."""
    if before is None:
        return now
    return PodReading(
        cpu_seconds=before.cpu_seconds if now.cpu_seconds is None else now.cpu_seconds,
        memory_bytes=before.memory_bytes if now.memory_bytes is None else now.memory_bytes,
        logs=now.logs or before.logs,
    )
