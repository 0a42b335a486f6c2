"""`CheckedObject`: the plugin's object under test, as the tests of a contract call it; `CheckedRuntime`: a runtime.

Each call of the plugin has a time limit and is recorded, so that a failure can say what the plugin did. Errors that the
plugin raises are passed on unchanged, since many tests expect one.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubeletx.api import (
    CAPABILITIES,
    AdmissionCheck,
    HealthCheck,
    Panel,
    PodSource,
    Records,
    Runtime,
    VolumeDriver,
)

from .watch import LoopWatch

__tracebackhide__ = True

T = TypeVar("T")

LIMIT_SECONDS = 30.0
LIMITS = {
    "pull_image": 600.0,
    "checkpoint": 120.0,
    "check": 10.0,
    "review": 5.0,
    "show": 10.0,
    "prepare": 120.0,
    "release": 120.0,
    "expand": 120.0,
    "stats": 10.0,
}
"""Limits of the methods that have another one. From `check` on they are the agent's defaults."""
WAITING = {"stop_unit": 1, "power_off": 1, "exec_sync": 2, "reboot": 1}
"""Methods that wait for a time that the caller gives, and the position of that argument."""
CANCEL_SECONDS = 5.0
LONGEST_TEXT = 100


class PluginFault(AssertionError):
    """The plugin broke a rule that holds for every call: its time limit, or the form of its answer."""


class CallRecord(NamedTuple):
    """One call of the plugin: method, arguments, result or error as text, and its duration."""

    method: str
    arguments: str
    outcome: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.method}({self.arguments}) {self.outcome} [{self.seconds:.2f} s]"


def methods_of(protocol: type) -> list[str]:
    """Return the names of the methods of `Runtime` or of a capability."""
    return [
        name for name, attribute in vars(protocol).items() if inspect.isfunction(attribute) and name[0] != "_"
    ]


METHODS: Mapping[str, type] = {
    name: protocol
    for protocol in (
        HealthCheck,
        PodSource,
        AdmissionCheck,
        Panel,
        Records,
        VolumeDriver,
        *CAPABILITIES,
        Runtime,
    )
    for name in methods_of(protocol)
}
"""Names of the contracts' methods, and the protocol of each; of several protocols the last one."""


class PluginCalls:
    """Makes and records the calls of the plugin in one test. `factor`: multiplies all time limits."""

    def __init__(self, watch: LoopWatch, factor: float = 1.0) -> None:
        """`watch`: its report is part of the failure message."""
        self.records: list[CallRecord] = []
        self.watch = watch
        self.protocol: type | None = None
        """Protocol of the object under test; None: not known yet."""
        self._factor = factor
        self._abandoned: list[asyncio.Task[Any]] = []

    def protocol_of(self, method: str) -> type | None:
        """Return the protocol whose contract has the method, at first that of the object under test."""
        if self.protocol is not None and method in methods_of(self.protocol):
            return self.protocol
        return METHODS.get(method)

    def limit_of(self, method: str, args: Sequence[Any]) -> float:
        """Return the time limit of a call in seconds."""
        limit = LIMITS.get(method, LIMIT_SECONDS) * self._factor
        position = WAITING.get(method)
        if position is not None and len(args) > position and isinstance(args[position], int | float):
            limit += args[position]
        return limit

    def call(self, method: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Call the method. Returns an awaitable if the contract says that the method is asynchronous."""
        if inspect.iscoroutinefunction(getattr(METHODS[method], method)):
            return self.limited(method, function, args, kwargs)
        begin = time.monotonic()
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            self._record(method, args, f"raised {of(error)}", begin)
            raise
        self._record(method, args, f"-> {short(result)}", begin)
        if inspect.iscoroutine(result):
            result.close()
            raise PluginFault(f"{method} returned a coroutine; the contract has no `await` here: write `def`")
        return result

    async def limited(
        self,
        method: str,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Any = MappingProxyType({}),
    ) -> Any:
        """Await `function`, an asynchronous one, at most for the time limit of `method`, under which it is recorded."""
        begin, limit = time.monotonic(), self.limit_of(method, args)
        task = asyncio.create_task(self._run(method, function, args, kwargs), name=f"contract-{method}")
        try:
            done, _ = await asyncio.wait([task], timeout=limit)
        except asyncio.CancelledError:
            self._record(method, args, "had not returned when the test gave up", begin)
            await self._end(task)
            raise
        if not done:
            ended = await self._end(task)
            self._record(method, args, f"did not return within {limit:g} s", begin)
            more = "" if ended else f", and it ran on for {CANCEL_SECONDS:g} s after it was cancelled"
            raise PluginFault(f"{method}({listed(args)}) did not return within {limit:g} s{more}")
        error = task.exception()
        self._record(method, args, f"raised {of(error)}" if error else f"-> {short(task.result())}", begin)
        return task.result()

    def start(self, method: str, function: Callable[..., Any], *args: Any) -> asyncio.Task[Any]:
        """Call an asynchronous method in a task, without a time limit. End the task with `cancel`."""
        self.records.append(CallRecord(method, listed(args), "started", 0.0))
        return asyncio.create_task(self._run(method, function, args, {}), name=f"contract-{method}")

    async def cancel(self, method: str, task: asyncio.Task[Any]) -> None:
        """Cancel the task of a method and wait for its end. Raises PluginFault if it continues."""
        begin = time.monotonic()
        if not await self._end(task):
            self._record(method, (), "went on after it was cancelled", begin)
            raise PluginFault(
                f"{method} went on for {CANCEL_SECONDS:g} s after it was cancelled; do not catch CancelledError"
            )

    async def _run(self, method: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        try:
            answer = function(*args, **kwargs)
            if not inspect.isawaitable(answer):
                raise PluginFault(f"{method} returned {short(answer)} without `await`: write `async def`")
            return await answer
        except (SystemExit, GeneratorExit) as error:
            if self._abandoned:
                raise  # Python closes the coroutine of an abandoned task
            raise PluginFault(f"{method} raised {of(error)}, which would end the agent") from error

    async def _end(self, task: asyncio.Task[Any]) -> bool:
        """Cancel the task; if it ignores that, abandon it, so that the event loop can close. Returns if it ended."""
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=CANCEL_SECONDS)
        if done:
            return True
        asyncio._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # the failure says it already
        self._abandoned.append(task)
        return False

    def _record(self, method: str, args: Sequence[Any], outcome: str, begin: float) -> None:
        if method in ("traits", "capability") and outcome.startswith("->"):
            return  # the suite reads these before many calls
        self.records.append(CallRecord(method, listed(args), outcome, time.monotonic() - begin))


class CheckedObject:
    """Passes all attributes of an object of the plugin through; calls of the contract are made by `PluginCalls`."""

    def __init__(self, plugin: Any, calls: PluginCalls) -> None:
        """`plugin`: such as a runtime, the object of a capability, or a panel."""
        self.plugin = plugin
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.plugin, name)
        if name not in METHODS or not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.calls.call(name, attribute, args, kwargs)

        return call


class CheckedRuntime(CheckedObject):
    """A checked runtime, or the object of one of its capabilities."""

    def capability(self, protocol: type[T]) -> Any:
        """Return the checked object of the capability; None if the runtime does not declare it."""
        capability = self.calls.call("capability", self.plugin.capability, [protocol], {})
        return None if capability is None else CheckedRuntime(capability, self.calls)


def plugin_of(checked: object) -> Any:
    """Return the object of the plugin behind a checked object; other objects are returned unchanged."""
    return checked.plugin if isinstance(checked, CheckedObject) else checked


def of(error: BaseException | None) -> str:
    """Return type and text of an error."""
    return f"{type(error).__name__}: {error}"


def short(value: object) -> str:
    """Return the text of a value, cut to one line."""
    if isinstance(value, type):
        return value.__name__
    name = getattr(value, "name", None)
    text = f"{type(value).__name__}({name})" if isinstance(value, msgspec.Struct) and name else repr(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def listed(args: Sequence[object]) -> str:
    """Return the arguments of a call as text."""
    return ", ".join(short(argument) for argument in args)
