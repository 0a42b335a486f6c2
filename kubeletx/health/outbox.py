"""Orders of commands to the guardian, and its answers, as files: ``orders/ID.json`` and ``answers/ID.json``.

An order that is carried out later moves below PERSIST: it survives a reboot.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.linux.files import read_regular, remove_file, replace_file, replace_unflushed

from .model import Order, OrderAnswer

MAX_BYTES: Final = 64 * 1024
MAX_ORDERS: Final = 64


class Orders:
    """The guardian's side. `run`, `persist`: its own directories, entered by root alone."""

    def __init__(self, run: Path, persist: Path, complain: Callable[[str], object]) -> None:
        self._orders, self._answers, self._later = run / "orders", run / "answers", persist / "orders"
        self._complain = complain
        self._kept: dict[str, str] = {}
        """Last answers to orders that are carried out later, by ID."""
        for path in (self._orders, self._answers, self._later):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        return self._orders

    def pending(self) -> list[Order]:
        """Return the orders that are not carried out, in the order of their files' names."""
        orders = []
        files = {
            path.name: path for place in (self._orders, self._later) for path in place.glob("[!.]*.json")
        }
        for _, path in sorted(files.items())[:MAX_ORDERS]:
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
        return order.id in self._kept or (self._later / f"{order.id}.json").exists()

    def kept(self, label: str) -> list[Order]:
        """Return the orders about a slot that wait. Orders to cancel are left out."""
        orders = [order for order in self.pending() if self.is_kept(order)]
        return [order for order in orders if order.label == label and order.verb != "cancel"]

    def answer(self, order: Order, answer: OrderAnswer, *, keeps: bool) -> None:
        """Answer an order and forget it; `keeps`: it is carried out later."""
        name = f"{order.id}.json"
        if keeps:
            self._keep(order)
        if self._kept.get(order.id) != answer.message:
            replace_unflushed(self._answers / name, msgspec.json.encode(answer))
        if keeps:
            self._kept[order.id] = answer.message
        else:
            self._kept.pop(order.id, None)
            for directory in (self._later, self._orders):
                (directory / name).unlink(missing_ok=True)

    def _keep(self, order: Order) -> None:
        path = self._later / f"{order.id}.json"
        try:
            if not path.exists():
                replace_file(path, msgspec.json.encode(order))
        except OSError as error:  # it is kept below RUN, until the node reboots
            self._complain(f"{path}: {error.strerror}")
        else:
            (self._orders / path.name).unlink(missing_ok=True)


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
