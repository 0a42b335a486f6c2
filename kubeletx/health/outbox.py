"""Orders of commands to the guardian, and its answers, as files: ``orders/ID.json`` and ``answers/ID.json``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.linux.files import read_regular, remove_file, replace_unflushed

from .model import Order, OrderAnswer

MAX_BYTES: Final = 64 * 1024
MAX_ORDERS: Final = 64


class Orders:
    """The guardian's side. `directory`: its own directory below RUN, entered by root alone."""

    def __init__(self, directory: Path, complain: Callable[[str], object]) -> None:
        self._orders, self._answers = directory / "orders", directory / "answers"
        self._complain = complain
        self._kept: dict[str, str] = {}
        for path in (self._orders, self._answers):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        return self._orders

    def pending(self) -> list[Order]:
        """Return the orders that are not carried out, in the order of their files' names."""
        orders = []
        for path in sorted(self._orders.glob("[!.]*.json"))[:MAX_ORDERS]:
            try:
                order = msgspec.json.decode(read_regular(path, MAX_BYTES), type=Order)
                if order.id != path.stem:
                    raise ValueError(f"its id is {order.id!r}")
            except (OSError, ValueError, RecursionError) as error:
                self._complain(f"{path}: {error}; it is removed")
                path.unlink(missing_ok=True)
                continue
            orders.append(order)
        return orders

    def is_kept(self, order: Order) -> bool:
        """Return True if the order has had its first answer and is carried out later."""
        return order.id in self._kept

    def kept(self, label: str) -> list[Order]:
        """Return the orders about a slot that wait. Orders to cancel are left out."""
        orders = [order for order in self.pending() if self.is_kept(order)]
        return [order for order in orders if order.label == label and order.verb != "cancel"]

    def answer(self, answer: OrderAnswer, *, keeps: bool) -> None:
        """OrderAnswer an order and forget it; `keeps`: it is carried out later."""
        if self._kept.get(answer.id) != answer.message:
            replace_unflushed(self._answers / f"{answer.id}.json", msgspec.json.encode(answer))
        if keeps:
            self._kept[answer.id] = answer.message
        else:
            self._kept.pop(answer.id, None)
            (self._orders / f"{answer.id}.json").unlink(missing_ok=True)


def send(directory: Path, order: Order, seconds: float) -> OrderAnswer | None:
    """Send an order and wait for its answer; None: no answer in time, and the order was taken back.

    Raises OSError.
    """
    path = directory / "orders" / f"{order.id}.json"
    answer = directory / "answers" / f"{order.id}.json"
    replace_unflushed(path, msgspec.json.encode(order))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer.exists():
            value = msgspec.json.decode(read_regular(answer, MAX_BYTES), type=OrderAnswer)
            remove_file(answer)
            return value
        time.sleep(0.01)
    remove_file(path)
    return None


def new_id() -> str:
    """Return an ID that sorts by time."""
    return f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
