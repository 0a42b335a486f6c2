"""Base class and helpers of the contract suites of all protocols: limited calls, readable failures, new objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar, cast

import pytest
import pytest_asyncio

from .calls import CheckedObject, PluginCalls, PluginFault, methods_of, short
from .failures import explain, readable
from .watch import BlockedLoop, LoopWatch, end_process

__tracebackhide__ = True

T = TypeVar("T")

FIXTURE = type(pytest.fixture(lambda: None))
NOT_MADE = pytest.StashKey[set[str]]()
"""Ids of the test classes whose object could not be made or opened."""


class SuiteBase:
    """Base class of the test classes of all contract suites."""

    pytestmark = pytest.mark.asyncio
    time_factor = 1.0
    """Multiplies the time limits of all calls of the plugin. Override it for a slow backend."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the failures of the suite's own tests readable; tests that authors add are left as they are.

        Raises TypeError if a fixture of the suite is overridden with a plain value, or an attribute with a fixture:
        pytest itself would ignore the first, and hand the second to the tests as a fixture object.
        """
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            _refuse_other_kind(cls, name)
        if cls.__module__.startswith(f"{__package__}."):
            for name, test in list(vars(cls).items()):
                if name.startswith("test_"):
                    setattr(cls, name, readable(test))

    @pytest_asyncio.fixture
    async def calls(self, request: pytest.FixtureRequest) -> AsyncIterator[PluginCalls]:
        """The calls of the plugin in this test, which have time limits. Fails if the plugin blocks the event loop."""
        capture = request.config.pluginmanager.getplugin("capturemanager")

        def end_run(text: str) -> None:
            if capture is not None:
                capture.suspend_global_capture(in_=True)
            end_process(f"{request.node.nodeid}: {text}")

        watch = LoopWatch(end_run)
        async with watch.running():
            yield PluginCalls(watch, self.time_factor)

    @pytest.fixture
    def maker(self, request: pytest.FixtureRequest, calls: PluginCalls) -> Maker:
        """Makes the functions that return new objects under test, each with time limits for all its calls.

        Skips the test if an earlier test of the class could not make or open its object.
        """
        suite = request.node.nodeid.rpartition("::")[0]
        not_made = request.config.stash.setdefault(NOT_MADE, set())
        if suite in not_made:
            pytest.skip("not run: the object under test could not be made or opened, see the first failure")
        return Maker(calls, lambda: not_made.add(suite))


def _refuse_other_kind(cls: type, name: str) -> None:
    own = vars(cls)[name]
    for base in cls.__mro__[1:]:
        if name.startswith(("_", "test_")) or name not in vars(base):
            continue
        was_fixture = isinstance(vars(base)[name], FIXTURE)
        if was_fixture == isinstance(own, FIXTURE):
            return
        if was_fixture:
            raise TypeError(
                f"{cls.__name__}.{name} overrides a fixture and is none; write '@pytest.fixture' above a method {name}"
            )
        raise TypeError(
            f"{cls.__name__}.{name} overrides an attribute and is a fixture; write '{name} = VALUE' in the class"
        )


class Maker:
    """Makes `NewObject` functions. `calls`: records and limits the calls of their objects."""

    def __init__(self, calls: PluginCalls, give_up: Callable[[], None]) -> None:
        """`give_up`: called if an object cannot be made or opened; the other tests are then not run."""
        self.calls = calls
        self.give_up = give_up

    def of(
        self, make: Callable[[], T], protocol: type, checked: type[CheckedObject] = CheckedObject
    ) -> NewObject[T]:
        """Return the function that returns new objects of `protocol`. `make`: the author's function."""
        self.calls.protocol = protocol
        return NewObject(make, protocol, self, checked)


class NewObject(Generic[T]):
    """Function that returns new objects under test, made by the author's function."""

    def __init__(
        self, make: Callable[[], T], protocol: type, maker: Maker, checked: type[CheckedObject]
    ) -> None:
        """`checked`: the class that passes the calls on to the object."""
        self.calls = maker.calls
        self.give_up = maker.give_up
        self._make = make
        self._protocol = protocol
        self._checked = checked

    def __call__(self) -> T:
        """Return a new object, not opened yet."""
        try:
            made = self._make()
            missing = [name for name in methods_of(self._protocol) if not hasattr(made, name)]
            if missing:
                raise PluginFault(f"the function returned {short(made)}, which has no {', '.join(missing)}")
            return cast(T, self._checked(made, self.calls))
        except (Exception, BlockedLoop, SystemExit) as error:  # noqa: BLE001 (the plugin's error is the subject)
            self.give_up()
            self.calls.watch.report = ""
            name = self._protocol.__name__
            text = explain(f"a {name} can be made; its factory does no I/O", error, self.calls)
        pytest.fail(text, pytrace=False)


def answer_of(method: str, answer: object, *types: type) -> Any:
    """Return `answer`. Raises PluginFault if it has none of the types that the method returns."""
    if isinstance(answer, types):
        return answer
    names = " or ".join(type_.__name__ for type_ in types)
    raise PluginFault(f"{method} returned {short(answer)}; it must return {names}")


async def cancel_one_call(calls: PluginCalls, method: str, function: Callable[..., Any], *args: Any) -> None:
    """Call an asynchronous method and cancel the call in its first wait. Raises PluginFault if it continues."""
    task = calls.start(method, function, *args)
    await asyncio.sleep(0)
    await calls.cancel(method, task)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
