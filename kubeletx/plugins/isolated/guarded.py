"""`Guarded`: calls the object of one registration in the child process, for the agent."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import structlog

from kubeletx.api import KubeletxError, PodSourceSink, Unavailable
from kubeletx.runtimes.isolation.remote import Call
from kubeletx.runtimes.isolation.wire import options_of, signatures

from ..callbacks import MOST_LEFT, Raised, outcome_of, problem_text, translated
from ..host import RegistrationHost
from ..registrations import KINDS, Hook, Registration
from ..volume_calls import MOST_LEFT as MOST_VOLUMES_LEFT
from ..volume_calls import VolumeCalls

log = structlog.get_logger(__name__)

_MOST_LEFT: Final = {Hook.ADMISSION_CHECK: MOST_LEFT, Hook.VOLUME_DRIVER: MOST_VOLUMES_LEFT}
"""While this many cancelled calls of one object still run, no further call is made; for other hooks 1."""


class Guarded:
    """Calls the plugin's object with the rules of `Callbacks`.

    Every exception of the plugin, even SystemExit, is raised as a KubeletxError. A call that does not end when it is
    cancelled is left running.
    """

    def __init__(self, registration: Registration, sink: PodSourceSink) -> None:
        """`sink`: for a pod source."""
        self._registration = registration
        self._sink = sink
        self._call: Call | None = None
        self._failed: KubeletxError | None = None
        self._left: set[asyncio.Task[Any]] = set()

    def make(self, settings: Any, host: RegistrationHost) -> None:
        """Call the plugin's factory. If it fails, every call raises the error."""
        try:
            made = self._registration.factory(settings, host)
            is_driver = self._registration.hook is Hook.VOLUME_DRIVER
            self._call = VolumeCalls(self._registration.name, made).call if is_driver else self._checked(made)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit too
            self._failed = self._translated("factory", error)

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of the plugin's object in a task of its own, and return its result."""
        if self._failed is not None:
            raise self._failed
        assert self._call is not None
        if len(self._left) >= _MOST_LEFT.get(self._registration.hook, 1):
            problem = "an earlier call has not ended since its deadline"
            raise Unavailable(problem_text(self._registration, method, problem))
        calling = outcome_of(partial(self._call, method, args))
        task = asyncio.create_task(calling, name=f"{self._registration.label} {method}")
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            raise
        outcome = task.result()
        if isinstance(outcome, Raised):
            raise self._translated(method, outcome.error) from outcome.error
        return outcome

    def _checked(self, made: Any) -> Call:
        """Return the function that calls a method of the plugin's object, and checks the type of its result."""
        more = (self._sink,) if self._registration.hook is Hook.POD_SOURCE else ()
        methods = signatures(KINDS[self._registration.hook].protocol)

        async def call(method: str, args: tuple[Any, ...]) -> Any:
            result = await getattr(made, method)(*args, *more)
            types = options_of(methods[method].result)
            if types != (type(None),) and not isinstance(result, types):
                wanted = " or ".join(type_.__name__ for type_ in types)
                raise TypeError(f"returned {type(result).__name__}, not {wanted}")
            return result

        return call

    def _translated(self, method: str, error: BaseException) -> KubeletxError:
        """Return the error as a KubeletxError. If the plugin did not translate it, its traceback is logged."""
        if not isinstance(error, KubeletxError):
            where = {"registration": self._registration.label, "callback": method}
            log.debug("Traceback of the plugin's exception", **where, exc_info=error)
        return translated(self._registration, method, error)


def failing(error: KubeletxError) -> Call:
    """Return the function for the calls of an object that cannot be made: it raises `error`."""

    async def call(_method: str, _args: tuple[Any, ...]) -> Any:
        raise error

    return call
